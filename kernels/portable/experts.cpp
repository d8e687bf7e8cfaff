// The expert FFN and the combine.
#include "kernels/experts.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"
#if METRO_DEVICE_FORM
#include "kernels/portable/expert_product.hpp"
#else
#include "kernels/cpu/host_products.hpp"
#endif

#include <algorithm>
#include <limits>
#include <string>

namespace metro {

namespace {

using namespace portable;

#if METRO_DEVICE_FORM

// Some experts of one launch, passed by value: no allocation and no copy to a device of its own. Recorded only if it is
// one, a dense MLP: which experts have rows is another matter in every step.
template <int capacity>
struct WorkBatch {
  enum : bool {
    never_recorded = capacity > 1
  };  // nvcc says of a variable that only a concept asks for that nobody does
  struct Entry {
    ExpertWeightPointers weights;
    std::int32_t first_row;
    std::int32_t num_rows;
  };
  Entry entries[capacity];
  std::int64_t num_entries = 0;
  const float* x = nullptr;

  KOKKOS_FUNCTION ExpertWeightPointers weights(std::int64_t entry) const { return entries[entry].weights; }
  KOKKOS_FUNCTION std::int64_t first_row(std::int64_t entry) const { return entries[entry].first_row; }
  KOKKOS_FUNCTION std::int64_t end_row(std::int64_t entry) const {
    return std::int64_t{entries[entry].first_row} + entries[entry].num_rows;
  }
  KOKKOS_FUNCTION const float* input(std::int64_t row, std::int64_t width) const { return x + row * width; }
};

void require_memory(std::span<const ExpertWork> work, const float* x, const float* hidden, const float* y) {
  require_kernel_memory("expert_ffn", {{"x", x}, {"hidden", hidden}, {"y", y}});
  for (const ExpertWork& item : work) {
    require_kernel_memory(
        "expert_ffn",
        {{"gate", item.weights.gate.data}, {"up", item.weights.up.data}, {"down", item.weights.down.data}});
  }
}

template <int capacity>
void launch_work(std::span<const ExpertWork> work, const float* x, float* hidden, float* y) {
  WorkBatch<capacity> batch;
  batch.x = x;
  std::int64_t most_rows = 0;
  for (const ExpertWork& item : work) {
    METRO_REQUIRE(item.first_row + item.num_rows <= std::numeric_limits<std::int32_t>::max(),
                  std::to_string(item.first_row) + " rows before an expert");
    const ExpertWeights& weights = item.weights;
    batch.entries[batch.num_entries++] = {{weights.gate.data, weights.up.data, weights.down.data},
                                          static_cast<std::int32_t>(item.first_row),
                                          static_cast<std::int32_t>(item.num_rows)};
    most_rows = std::max(most_rows, item.num_rows);
  }
  launch_experts(batch, work.front().weights, num_row_blocks(most_rows), hidden, y);
}

#endif

}  // namespace

void expert_ffn(std::span<const ExpertWork> work, const float* x, float* hidden, float* y) {
  if (work.empty()) {
    return;
  }
  const ExpertWeights& first = work.front().weights;
  METRO_REQUIRE(same_shape(first.up, first.gate) && first.down.in == first.gate.out && first.down.out == first.gate.in,
                "gate, up and down of an expert do not fit together");
  for (const ExpertWork& item : work) {
    METRO_REQUIRE(same_shape(item.weights.gate, first.gate) && same_shape(item.weights.up, first.up) &&
                      same_shape(item.weights.down, first.down) && item.weights.activation == first.activation,
                  "experts of different shape, stored type or activation in one call");
  }
#if METRO_DEVICE_FORM
  require_memory(work, x, hidden, y);
  if (work.size() == 1) {
    return launch_work<1>(work, x, hidden, y);
  }
  constexpr int most_of_launch = 64;
  while (!work.empty()) {
    const auto part = work.first(std::min<std::size_t>(work.size(), most_of_launch));
    launch_work<most_of_launch>(part, x, hidden, y);
    work = work.subspan(part.size());
  }
#else
  launches_so_far += 2;  // a device needs two kernels
  cpu::expert_ffn(work, x, hidden, y);
#endif
}

void combine(const float* results, const std::int64_t* offsets, const float* weights, std::int64_t num_rows,
             std::int64_t top_k, std::int64_t width, float* out) {
  require_kernel_memory("combine", {{"results", results}, {"offsets", offsets}, {"weights", weights}, {"out", out}});
  for_each_team(
      "combine", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        float* sums = out + row * width;
        for_each_element(team, width, [=](std::int64_t i) { sums[i] = 0.0F; });
        for (std::int64_t k = 0; k < top_k; ++k) {
          const float weight = weights[row * top_k + k];
          const float* result = results + offsets[row * top_k + k];
          for_each_element(team, width, [=](std::int64_t i) { sums[i] = fused(weight, result[i], sums[i]); });
        }
      });
}

}  // namespace metro
