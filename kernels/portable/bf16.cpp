// Activations as bf16.
#include "kernels/bf16.hpp"

#include "kernels/portable/bf16_rounding.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/math.hpp"

#include <cstdint>

namespace metro {

namespace {

using namespace portable;

// Elements in groups, so that an item is worth a launch on a host; one element per thread on a device.
template <class F>
struct ElementGroup {
  static constexpr std::int64_t size_of_group = device_form ? 1 : 4096;
  F work;
  std::int64_t size;

  KOKKOS_FUNCTION void operator()(std::int64_t group) const {
    const std::int64_t end = (group + 1) * size_of_group < size ? (group + 1) * size_of_group : size;
    METRO_INDEPENDENT
    for (std::int64_t i = group * size_of_group; i < end; ++i) {
      work(i);
    }
  }
};

template <class F>
void for_each_of(const char* label, std::int64_t size, const F& work) {
  using Group = ElementGroup<F>;
  for_each_item(label, (size + Group::size_of_group - 1) / Group::size_of_group, Group{work, size});
}

struct Round {
  const float* from;
  std::uint16_t* to;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { to[i] = rounded_to_bf16(from[i]); }
};

struct SiluTimes {
  std::uint16_t* gate;
  const std::uint16_t* up;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    gate[i] = rounded_to_bf16(silu(widened(gate[i])) * widened(up[i]));
  }
};

struct Widen {
  const std::uint16_t* from;
  float* to;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { to[i] = widened(from[i]); }
};

}  // namespace

void round_to_bf16(const float* from, std::int64_t size, std::uint16_t* to) {
  require_kernel_memory("round_to_bf16", {{"from", from}, {"to", to}});
  for_each_of("round_to_bf16", size, Round{from, to});
}

void silu_times_bf16(std::uint16_t* gate, const std::uint16_t* up, std::int64_t size) {
  require_kernel_memory("silu_times_bf16", {{"gate", gate}, {"up", up}});
  for_each_of("silu_times_bf16", size, SiluTimes{gate, up});
}

void widen_bf16_array(const std::uint16_t* from, std::int64_t size, float* to) {
  require_kernel_memory("widen_bf16_array", {{"from", from}, {"to", to}});
  for_each_of("widen_bf16_array", size, Widen{from, to});
}

}  // namespace metro
