// The router's top-k, the expert FFN and the combine.
#include "kernels/experts.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"
#if METRO_DEVICE_FORM
#include "kernels/portable/panel_product.hpp"
#else
#include "kernels/cpu/host_products.hpp"
#endif

#include <algorithm>
#include <string>

namespace metro {

namespace {

using namespace portable;

#if METRO_DEVICE_FORM

// Some experts of one launch, passed by value: no allocation and no copy to a device of its own. Never recorded: which
// experts have rows is another matter in every step.
struct WorkBatch {
  static constexpr std::int64_t capacity = 64;
  struct Entry {
    const void* gate;
    const void* up;
    const void* down;
    std::int64_t first_row;
    std::int64_t num_rows;
    std::int64_t first_block;  // number of row blocks before this entry
  };
  Entry entries[capacity];
  std::int64_t num_entries = 0;
  std::int64_t num_blocks = 0;
};

WorkBatch batch_of(std::span<const ExpertWork> work) {
  WorkBatch batch;
  for (const ExpertWork& item : work) {
    batch.entries[batch.num_entries++] = {item.weights.gate.data, item.weights.up.data, item.weights.down.data,
                                          item.first_row,         item.num_rows,        batch.num_blocks};
    batch.num_blocks += num_row_blocks(item.num_rows);
  }
  return batch;
}

// A row block of one expert and the strip of output columns that a work item computes. Items run over strips first: the
// weights of an expert are read in the order in which they lie.
struct ItemPlace {
  const WorkBatch::Entry& entry;
  std::int64_t first_row;
  std::int64_t num_rows;
  std::int64_t strip;
  std::int64_t first_column;
  std::int64_t num_columns;  // not positive: padding
};

KOKKOS_INLINE_FUNCTION ItemPlace place_of(const WorkBatch& batch, std::int64_t item, std::int64_t out) {
  const std::int64_t strips = num_strips(out);
  const std::int64_t block = item / strips;
  std::int64_t entry_idx = 0;
  while (entry_idx + 1 < batch.num_entries && batch.entries[entry_idx + 1].first_block <= block) {
    ++entry_idx;
  }
  const WorkBatch::Entry& entry = batch.entries[entry_idx];
  const std::int64_t skipped = (block - entry.first_block) * block_rows;
  const std::int64_t rows_left = entry.num_rows - skipped;
  const std::int64_t first_column = item % strips * strip_columns;
  const std::int64_t columns_left = out - first_column;
  return {entry,
          entry.first_row + skipped,
          rows_left < block_rows ? rows_left : block_rows,
          item % strips,
          first_column,
          columns_left < strip_columns ? columns_left : strip_columns};
}

// hidden = silu(gate(x)) * up(x)
template <class T>
struct GateUpItems {
  static constexpr bool never_recorded = true;
  WorkBatch batch;
  const float* x;
  float* hidden;
  std::int64_t in;
  std::int64_t out;

  KOKKOS_FUNCTION void operator()(std::int64_t item) const {
    const ItemPlace place = place_of(batch, item, out);
    if (place.num_columns <= 0) {
      return;
    }
    const float* rows = x + place.first_row * in;
    StripResult gate;
    StripResult up;
    multiply_strip<T>(rows, place.num_rows, place.entry.gate, place.strip, in, gate);
    multiply_strip<T>(rows, place.num_rows, place.entry.up, place.strip, in, up);
    for (std::int64_t r = 0; r < place.num_rows; ++r) {
      for (std::int64_t column = 0; column < strip_columns; ++column) {
        gate.values[r][column] = silu(gate.values[r][column]) * up.values[r][column];
      }
      float* destination = hidden + (place.first_row + r) * out + place.first_column;
      for (std::int64_t column = 0; column < place.num_columns; ++column) {
        destination[column] = gate.values[r][column];
      }
    }
  }
};

// y = down(hidden)
template <class T>
struct DownItems {
  static constexpr bool never_recorded = true;
  WorkBatch batch;
  const float* hidden;
  float* y;
  std::int64_t in;
  std::int64_t out;

  KOKKOS_FUNCTION void operator()(std::int64_t item) const {
    const ItemPlace place = place_of(batch, item, out);
    if (place.num_columns <= 0) {
      return;
    }
    StripResult result;
    multiply_strip<T>(hidden + place.first_row * in, place.num_rows, place.entry.down, place.strip, in, result);
    for (std::int64_t r = 0; r < place.num_rows; ++r) {
      float* destination = y + (place.first_row + r) * out + place.first_column;
      for (std::int64_t column = 0; column < place.num_columns; ++column) {
        destination[column] = result.values[r][column];
      }
    }
  }
};

void require_memory(std::span<const ExpertWork> work, const float* x, const float* hidden, const float* y) {
  require_kernel_memory("expert_ffn", {{"x", x}, {"hidden", hidden}, {"y", y}});
  for (const ExpertWork& item : work) {
    require_kernel_memory(
        "expert_ffn",
        {{"gate", item.weights.gate.data}, {"up", item.weights.up.data}, {"down", item.weights.down.data}});
  }
}

// GateUp, Down: how the two halves are stored.
template <class GateUp, class Down>
void launch_experts(std::span<const ExpertWork> work, const float* x, float* hidden, float* y) {
  const std::int64_t width = work.front().weights.gate.in;
  const std::int64_t hidden_width = work.front().weights.gate.out;
  while (!work.empty()) {
    const auto part = work.first(std::min<std::size_t>(work.size(), WorkBatch::capacity));
    const WorkBatch batch = batch_of(part);
    for_each_item("expert_gate_up", batch.num_blocks * num_strips(hidden_width),
                  GateUpItems<GateUp>{batch, x, hidden, width, hidden_width});
    for_each_item("expert_down", batch.num_blocks * num_strips(width),
                  DownItems<Down>{batch, hidden, y, hidden_width, width});
    work = work.subspan(part.size());
  }
}

#endif

bool same_shape(const PackedMatrix& a, const PackedMatrix& b) {
  return a.type == b.type && a.out == b.out && a.in == b.in;
}

}  // namespace

void gate_top_k(const float* logits, std::int64_t num_rows, std::int64_t num_experts, std::int64_t top_k,
                bool normalise, std::int32_t* expert_ids, float* weights) {
  METRO_REQUIRE(top_k >= 0 && top_k <= num_experts, std::to_string(top_k) + " of " + std::to_string(num_experts));
  require_kernel_memory("gate_top_k", {{"logits", logits}, {"expert_ids", expert_ids}, {"weights", weights}});
  for_each_team(
      "gate_top_k", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = logits + row * num_experts;
        const float top = largest(team, num_experts, [=](std::int64_t i) { return in[i]; });
        const float sum = sum_in_partials(team, num_experts,
                                          [=](std::int64_t i, float partial) { return partial + exp_of(in[i] - top); });
        float chosen_sum = 0.0F;
        std::uint64_t code = above_all_codes;
        for (std::int64_t k = 0; k < top_k; ++k) {
          code = best_below(team, in, num_experts, code);
          const std::int32_t expert = id_of_rank_code(code);
          const float weight = exp_of(in[expert] - top) / sum;
          chosen_sum = chosen_sum + weight;
          if (team.rank() == 0) {
            expert_ids[row * top_k + k] = expert;
            weights[row * top_k + k] = weight;
          }
        }
        if (normalise && team.rank() == 0) {
          for (std::int64_t k = 0; k < top_k; ++k) {
            weights[row * top_k + k] = weights[row * top_k + k] / chosen_sum;
          }
        }
      });
}

void expert_ffn(std::span<const ExpertWork> work, const float* x, float* hidden, float* y) {
  if (work.empty()) {
    return;
  }
  const ExpertWeights& first = work.front().weights;
  METRO_REQUIRE(same_shape(first.up, first.gate) && first.down.in == first.gate.out && first.down.out == first.gate.in,
                "gate, up and down of an expert do not fit together");
  for (const ExpertWork& item : work) {
    METRO_REQUIRE(same_shape(item.weights.gate, first.gate) && same_shape(item.weights.up, first.up) &&
                      same_shape(item.weights.down, first.down),
                  "experts of different shape or stored type in one call");
  }
#if METRO_DEVICE_FORM
  require_memory(work, x, hidden, y);
  with_element_of(first.gate.type, [&](auto gate_up) {
    with_element_of(first.down.type,
                    [&](auto down) { launch_experts<decltype(gate_up), decltype(down)>(work, x, hidden, y); });
  });
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
