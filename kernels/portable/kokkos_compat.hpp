// The one place that knows Kokkos versions (3.4 as Debian ships it, 4.0 and newer) and how work is launched.
// Two forms of every kernel exist behind one source:
//   for hosts    one thread per work item, inner loops by SIMD level (kernels/cpu);
//   for devices  one team of threads per row, head or panel of weights, launched into the queue of
//                kernels/queue.hpp without waiting: with a Kokkos for CUDA, and on the emulated device
//                (emulated_device.hpp), so that a machine without a GPU can test it.
// Both give the same bits.
#pragma once

#include "base/error.hpp"
#include "kernels/cpu/team.hpp"
#include "kernels/portable/launch_count.hpp"
#include "kernels/portable/math.hpp"

#include <Kokkos_Core.hpp>

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#ifndef METRO_EMULATED_DEVICE
#define METRO_EMULATED_DEVICE 0
#endif
#if METRO_EMULATED_DEVICE || defined(KOKKOS_ENABLE_CUDA)
#define METRO_DEVICE_FORM 1
#else
#define METRO_DEVICE_FORM 0
#endif
#if METRO_EMULATED_DEVICE
#include "kernels/portable/emulated_device.hpp"
#include "kernels/queue.hpp"
#elif METRO_DEVICE_FORM
#include "kernels/cuda/cuda_check.hpp"
#endif

// Before a loop whose iterations are independent although the compiler cannot see it (x and y may be one array).
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define METRO_INDEPENDENT _Pragma("GCC ivdep")
#else
#define METRO_INDEPENDENT
#endif

namespace metro::portable {

using Execution = Kokkos::DefaultExecutionSpace;
using Memory = Execution::memory_space;

inline constexpr bool device_form = METRO_DEVICE_FORM == 1;
inline constexpr int num_partials = 16;  // of every sum that has no output columns

// Position of the lowest set bit of `word`, which has one.
KOKKOS_FORCEINLINE_FUNCTION std::int32_t lowest_bit(std::uint64_t word) {
#if KOKKOS_VERSION >= 40100
  return Kokkos::Experimental::countr_zero_builtin(word);
#else
  return std::countr_zero(word);
#endif
}

// What kernels run on: in the queue of kernels/queue.hpp.
#ifdef KOKKOS_ENABLE_CUDA
Execution execution();
#else
inline Execution execution() {
  return {};
}
#endif

// Kokkos passes a kernel's functor with the launch if it is smaller than 512 bytes together with Kokkos's own parts (48
// of a range, 152 of teams in Kokkos 4.6), and else by way of a buffer that it has to wait for, which a graph cannot
// record.
inline constexpr std::size_t most_functor_bytes = device_form ? 320 : 1 << 20;
// Functors of kernels that are never recorded may be larger; they say so by a member.
template <class F>
concept NeverRecorded = static_cast<bool>(F::never_recorded);

// Launches a kernel. On a device returns at once, on a host when it has run. Throws Error(machine) if the device does
// not take it: such a kernel is not in the queue, so no wait would report it, and Kokkos does not look (4.1 to 4.6).
template <class Policy, class F>
void launch(const char* label, const Policy& policy, const F& work) {
  static_assert(sizeof(F) <= most_functor_bytes || NeverRecorded<F>, "too large to be recorded in a graph");
  ++launches_so_far;
#if METRO_EMULATED_DEVICE
  emulated::enqueue_kernel(native_queue(), label, [label, policy, work] { Kokkos::parallel_for(label, policy, work); });
#elif METRO_DEVICE_FORM
  const auto fail = [label](const std::string& reason) {
    throw Error(ExitCode::machine, std::string("launch of ") + label + " failed: " + reason);
  };
  try {
    Kokkos::parallel_for(label, policy, work);
  } catch (const std::runtime_error& failure) {
    fail(failure.what());
  }
  if (const cudaError_t result = cudaGetLastError(); result != cudaSuccess) {
    fail(cuda::text_of(result));
  }
#else
  Kokkos::parallel_for(label, policy, work);
  Execution().fence();
#endif
}

struct KernelArgument {
  const char* name;
  const void* pointer;
};

// On the emulated device: a Bug that names the kernel and the argument if one of the arrays is not memory of kernels.
// nullptr passes: arrays of no elements.
inline void require_kernel_memory([[maybe_unused]] const char* kernel,
                                  [[maybe_unused]] std::initializer_list<KernelArgument> arguments) {
#if METRO_EMULATED_DEVICE
  for (const KernelArgument& argument : arguments) {
    METRO_REQUIRE(argument.pointer == nullptr || emulated::is_kernel_memory(argument.pointer),
                  std::string(kernel) + ": " + argument.name + " is not memory of kernels");
  }
#endif
}

// Runs work(i) for i in 0..num_items-1. Items are large (microseconds) and may differ in size.
// num_bytes: that all items read, where that tells better than their number how many threads they are worth.
template <class F>
void for_each_item(const char* label, std::int64_t num_items, const F& work,
                   [[maybe_unused]] std::optional<std::int64_t> num_bytes = std::nullopt) {
  if (num_items <= 0) {
    return;
  }
#if defined(KOKKOS_ENABLE_SERIAL) && !METRO_DEVICE_FORM
  if constexpr (std::is_same_v<Execution, Kokkos::Serial>) {
    ++launches_so_far;
    // A Kokkos without threads does not keep the kernels from having them.
    return num_bytes ? cpu::run_items(num_items, *num_bytes, work) : cpu::run_items(num_items, work);
  }
#endif
  using Policy = Kokkos::RangePolicy<Execution, Kokkos::IndexType<std::int64_t>, Kokkos::Schedule<Kokkos::Dynamic>>;
  launch(label, Policy(execution(), 0, num_items), work);
}

// The threads of a team and the memory they share beside the partial sums of row_reductions.hpp.
struct TeamShape {
  int num_threads = 0;  // on a device; 0: as many as Kokkos recommends, as always on a host
  std::int64_t shared_bytes = 0;
};

#if METRO_DEVICE_FORM

// The threads that share one row.
class Team {
 public:
  using Member = Kokkos::TeamPolicy<Execution>::member_type;
  static constexpr std::size_t alignment = 16;
  static constexpr std::size_t scratch_bytes = num_partials * sizeof(float);

  KOKKOS_FUNCTION explicit Team(const Member& member)
      : member_(member), partials_(static_cast<float*>(member.team_shmem().get_shmem(std::size_t{scratch_bytes}))) {}
  // Memory that the team shares, of the size that its TeamShape says. Called once, by all threads.
  KOKKOS_FUNCTION void* shared(std::int64_t num_bytes) const {
    return member_.team_shmem().get_shmem_aligned(static_cast<std::size_t>(num_bytes), std::size_t{alignment});
  }
  KOKKOS_FUNCTION std::int64_t rank() const { return member_.team_rank(); }
  KOKKOS_FUNCTION std::int64_t size() const { return member_.team_size(); }
  KOKKOS_FUNCTION void barrier() const { member_.team_barrier(); }
  KOKKOS_FUNCTION float* partials() const { return partials_; }  // [num_partials], shared by the team
  template <class T>
  KOKKOS_FUNCTION T max(T value) const {
    member_.team_reduce(Kokkos::Max<T>(value));
    return value;
  }

 private:
  const Member& member_;
  float* partials_;
};

template <class F>
struct TeamWork {
  static constexpr bool never_recorded = NeverRecorded<F>;
  F work;
  KOKKOS_FUNCTION void operator()(const Team::Member& member) const { work(Team(member), member.league_rank()); }
};

// Runs work(team, i) for i in 0..num_items-1, one team each.
template <class F>
void for_each_shaped_team(const char* label, std::int64_t num_items, const TeamShape& shape, const F& work,
                          std::optional<std::int64_t> /*num_bytes*/ = std::nullopt) {
  if (num_items <= 0) {
    return;
  }
  METRO_REQUIRE(num_items <= std::numeric_limits<int>::max(), label);
  using Policy = Kokkos::TeamPolicy<Execution>;
  const bool recommended = shape.num_threads == 0 || std::is_same_v<Memory, Kokkos::HostSpace>;
  Policy policy = recommended ? Policy(execution(), static_cast<int>(num_items), Kokkos::AUTO)
                              : Policy(execution(), static_cast<int>(num_items), shape.num_threads);
  const auto lost_to_alignment = static_cast<std::int64_t>(Team::scratch_bytes + Team::alignment);
  const std::int64_t scratch_bytes = static_cast<std::int64_t>(Team::scratch_bytes) + lost_to_alignment;
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch_bytes + shape.shared_bytes)));
  launch(label, policy, TeamWork<F>{work});
}

template <class F>
void for_each_team(const char* label, std::int64_t num_items, const F& work,
                   std::optional<std::int64_t> /*num_bytes*/ = std::nullopt) {
  for_each_shaped_team(label, num_items, {}, work);
}

#else

// On a host a row has one thread.
class Team {
 public:
  static constexpr std::int64_t rank() { return 0; }
  static constexpr std::int64_t size() { return 1; }
  static void barrier() {}
  template <class T>
  static T max(T value) {
    return value;
  }
};

template <class F>
struct TeamWork {
  F work;
  void operator()(std::int64_t item) const { work(Team(), item); }
};

// Runs work(team, i) for i in 0..num_items-1. num_bytes: see for_each_item().
template <class F>
void for_each_team(const char* label, std::int64_t num_items, const F& work,
                   std::optional<std::int64_t> num_bytes = std::nullopt) {
  for_each_item(label, num_items, TeamWork<F>{work}, num_bytes);
}

template <class F>
void for_each_shaped_team(const char* label, std::int64_t num_items, const TeamShape& /*shape*/, const F& work,
                          std::optional<std::int64_t> num_bytes = std::nullopt) {
  for_each_team(label, num_items, work, num_bytes);
}

#endif

// work(i) for i in 0..size-1 in any order, shared among the team. No barrier.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION void for_each_element(const Team& team, std::int64_t size, const F& work) {
  const std::int64_t step = team.size();
  METRO_INDEPENDENT
  for (std::int64_t i = team.rank(); i < size; i += step) {
    work(i);
  }
}

// to(i, from(i)) for i in 0..count-1, shared among the team; several from() are under way before the first to().
template <class From, class To>
KOKKOS_FORCEINLINE_FUNCTION void copy_by_team(const Team& team, std::int64_t count, const From& from, const To& to) {
  constexpr std::int64_t ahead = 8;
  using Value = decltype(from(std::int64_t{0}));
  const std::int64_t step = team.size();
  for (std::int64_t first = team.rank(); first < count; first += ahead * step) {
    Value values[ahead] = {};
    for (std::int64_t j = 0; j < ahead; ++j) {
      if (first + j * step < count) {
        values[j] = from(first + j * step);
      }
    }
    for (std::int64_t j = 0; j < ahead; ++j) {
      if (first + j * step < count) {
        to(first + j * step, values[j]);
      }
    }
  }
}

}  // namespace metro::portable
