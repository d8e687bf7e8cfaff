// Experts by work lists of the device.
#include "kernels/listed_experts.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#if METRO_DEVICE_FORM
#include "kernels/portable/expert_product.hpp"
#else
#include "kernels/cpu/host_products.hpp"
#endif

#include <algorithm>
#include <string>
#include <vector>

namespace metro {

namespace {

using namespace portable;

#if METRO_DEVICE_FORM

struct ListedSource {
  const ExpertWeightPointers* of_slots;
  ListedRows lists;
  std::int64_t num_entries;

  KOKKOS_FUNCTION ExpertWeightPointers weights(std::int64_t slot) const { return of_slots[slot]; }
  KOKKOS_FUNCTION std::int64_t first_row(std::int64_t slot) const { return lists.work_begin[slot]; }
  KOKKOS_FUNCTION std::int64_t end_row(std::int64_t slot) const { return lists.work_begin[slot + 1]; }
  KOKKOS_FUNCTION const float* input(std::int64_t row, std::int64_t /*width*/) const {
    return lists.rows + lists.work[row] / lists.top_k * lists.row_stride;
  }
};

// Enough for slots of average size if all that can be asked for is; beyond that a slot's blocks follow each other.
std::int64_t splits_of(const ListedRows& rows, std::int64_t num_slots) {
  constexpr std::int64_t most_splits = 8;
  const std::int64_t blocks = num_row_blocks((rows.max_work + num_slots - 1) / num_slots);
  return std::clamp<std::int64_t>(blocks, 1, most_splits);
}

#endif

}  // namespace

ExpertWeightTable::ExpertWeightTable(std::span<const ExpertWeights> of_slots)
    : of_slots_(of_slots.begin(), of_slots.end()),
      pointers_("expert weight table", static_cast<std::int64_t>(of_slots.size())) {
  const auto used = std::find_if(of_slots_.begin(), of_slots_.end(),
                                 [](const ExpertWeights& weights) { return weights.gate.data != nullptr; });
  METRO_REQUIRE(used != of_slots_.end(), std::to_string(of_slots.size()) + " slots without an expert");
  shape_ = *used;
  METRO_REQUIRE(
      same_shape(shape_.up, shape_.gate) && shape_.down.in == shape_.gate.out && shape_.down.out == shape_.gate.in,
      "gate, up and down of an expert do not fit together");
  std::vector<ExpertWeightPointers> pointers;
  for (const ExpertWeights& weights : of_slots_) {
    METRO_REQUIRE(weights.gate.data == nullptr ||
                      (same_shape(weights.gate, shape_.gate) && same_shape(weights.up, shape_.up) &&
                       same_shape(weights.down, shape_.down) && weights.activation == shape_.activation),
                  "experts of different shape, stored type or activation in one layer");
    require_kernel_memory("expert weights",
                          {{"gate", weights.gate.data}, {"up", weights.up.data}, {"down", weights.down.data}});
    pointers.push_back({weights.gate.data, weights.up.data, weights.down.data});
  }
  copy_from_host<ExpertWeightPointers>(pointers_.data(), pointers);
}

void listed_expert_ffn(const ExpertWeightTable& table, const ListedRows& rows, float* hidden, float* y) {
  METRO_REQUIRE(rows.top_k >= 1 && rows.row_stride >= table.shape().gate.in,
                std::to_string(rows.top_k) + " of " + std::to_string(rows.row_stride) + " floats");
  require_kernel_memory(
      "listed_expert_ffn",
      {{"work_begin", rows.work_begin}, {"work", rows.work}, {"rows", rows.rows}, {"hidden", hidden}, {"y", y}});
  if (rows.max_work == 0) {
    return;
  }
#if METRO_DEVICE_FORM
  launch_experts(ListedSource{table.pointers(), rows, table.num_slots()}, table.shape(),
                 splits_of(rows, table.num_slots()), hidden, y);
#else
  launches_so_far += 2;  // a device needs two kernels
  const std::int64_t width = table.shape().gate.in;
  std::vector<ExpertWork> work;
  for (std::int64_t slot = 0; slot < table.num_slots(); ++slot) {
    const std::int64_t first = rows.work_begin[slot];
    const std::int64_t end = rows.work_begin[slot + 1];
    if (first < end) {
      work.push_back({table.of_slots()[static_cast<std::size_t>(slot)], first, end - first});
    }
    // An input lies where its output comes to lie: all inputs are read before outputs are written.
    for (std::int64_t i = first; i < end; ++i) {
      std::copy_n(rows.rows + rows.work[i] / rows.top_k * rows.row_stride, width, y + i * width);
    }
  }
  if (!work.empty()) {
    cpu::expert_ffn(work, y, hidden, y);
  }
#endif
}

}  // namespace metro
