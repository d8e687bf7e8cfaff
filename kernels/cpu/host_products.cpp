#include "kernels/cpu/host_products.hpp"

#include "base/integers.hpp"
#include "kernels/cpu/row_tiles.hpp"
#include "kernels/cpu/simd_form.hpp"
#include "kernels/cpu/team.hpp"
#include "kernels/portable/activation.hpp"

#include <initializer_list>

namespace metro::cpu {

namespace {

// Sums of a block of rows and one panel.
struct StripSums {
  alignas(64) float values[block_rows][panel_columns];
};

const void* panel_of(const PackedMatrix& w, std::int64_t strip) {
  return static_cast<const std::byte*>(w.data) + strip * panel_bytes(w);
}

void multiply(const SimdForm& form, StoredType type, const StripProduct& product) {
  switch (type) {
    case StoredType::bf16:
      return form.multiply_bf16(product);
    case StoredType::f32:
      return form.multiply_f32(product);
    case StoredType::int8:
      return form.multiply_int8(product);
    case StoredType::fp8:
      return form.multiply_fp8(product);
    case StoredType::mxfp4:
      return form.multiply_mxfp4(product);
  }
}

void add_biases(const PackedMatrix& w, const void* panel, std::int64_t num_rows, float* sums) {
  const void* end = static_cast<const std::byte*>(panel) + panel_bytes(w) - panel_column_bytes;
  const auto* const biases = static_cast<const float*>(end);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t column = 0; column < panel_columns; ++column) {
      sums[r * panel_columns + column] += biases[column];
    }
  }
}

// Strips first_strip .. first_strip + num_strips - 1 of each matrix, matrix by matrix, into as many elements of sums.
// x: the block of rows in tiles.
void multiply(std::initializer_list<const PackedMatrix*> matrices, std::int64_t first_strip, std::int64_t num_strips,
              const float* x, std::int64_t num_rows, StripSums* sums) {
  const PackedMatrix& w = **matrices.begin();
  StripProduct product{x, num_rows, w.in, 0, {}, {}};
  for (const PackedMatrix* matrix : matrices) {
    for (std::int64_t strip = first_strip; strip < first_strip + num_strips; ++strip) {
      product.panels[product.num_panels] = panel_of(*matrix, strip);
      product.sums[product.num_panels] = sums[product.num_panels].values[0];
      ++product.num_panels;
    }
  }
  multiply(simd_form(), w.type, product);
  for (std::int64_t panel = 0; w.has_bias && panel < product.num_panels; ++panel) {
    add_biases(w, product.panels[panel], num_rows, product.sums[panel]);
  }
}

// Rows that results go to, `stride` elements apart.
struct Rows {
  float* data;
  std::int64_t stride;
};

// Writes columns of strip `strip`, of `out` columns in all, to the rows of y.
void write_strip(const StripSums& sums, std::int64_t num_rows, std::int64_t strip, std::int64_t out, const Rows& y) {
  const std::int64_t first_column = strip * panel_columns;
  const std::int64_t num_columns = std::min(panel_columns, out - first_column);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    std::copy_n(sums.values[r], num_columns, y.data + r * y.stride + first_column);
  }
}

// y = w(x) for the strips of one block of rows.
void multiply_strips(const PackedMatrix& w, const ConstRows& x, const Rows& y, const StripRange& range,
                     std::uint64_t call) {
  const float* tiles = row_tiles_of_thread().pack(x, range.num_rows, w.in, simd_form().largest_tile, call);
  const std::int64_t at_once = simd_form().panels_at_once(range.num_rows);
  StripSums sums[most_panels];
  for (std::int64_t strip = range.first; strip < range.last; strip += at_once) {
    const std::int64_t num_strips = std::min(at_once, range.last - strip);
    multiply({&w}, strip, num_strips, tiles, range.num_rows, sums);
    for (std::int64_t i = 0; i < num_strips; ++i) {
      write_strip(sums[i], range.num_rows, strip + i, w.out, y);
    }
  }
}

// gate = join(gate, up)
template <class Join>
void join_by(StripSums& gate, const StripSums& up, std::int64_t num_rows, const Join& join) {
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t column = 0; column < panel_columns; ++column) {
      gate.values[r][column] = join(gate.values[r][column], up.values[r][column]);
    }
  }
}

// A loop for each activation, in which the compiler finds no choice.
void join_gated(const Activation& activation, StripSums& gate, const StripSums& up, std::int64_t num_rows) {
  switch (activation.kind) {
    case ActivationKind::silu:
      return join_by(gate, up, num_rows, [](float g, float u) { return portable::silu(g) * u; });
    case ActivationKind::clamped_swiglu:
      return join_by(gate, up, num_rows,
                     [limit = activation.limit](float g, float u) { return portable::clamped_swiglu(g, u, limit); });
  }
}

// hidden = activation(gate(x), up(x)) for the strips of one block of rows.
void multiply_gated(const ExpertWeights& weights, const float* x, float* hidden, const StripRange& range,
                    std::uint64_t call) {
  const PackedMatrix& gate = weights.gate;
  const float* tiles =
      row_tiles_of_thread().pack({x, gate.in}, range.num_rows, gate.in, simd_form().largest_tile, call);
  const std::int64_t at_once = std::max<std::int64_t>(simd_form().panels_at_once(range.num_rows) / 2, 1);
  StripSums sums[most_panels];
  for (std::int64_t strip = range.first; strip < range.last; strip += at_once) {
    const std::int64_t num_strips = std::min(at_once, range.last - strip);
    multiply({&gate, &weights.up}, strip, num_strips, tiles, range.num_rows, sums);
    for (std::int64_t i = 0; i < num_strips; ++i) {
      join_gated(weights.activation, sums[i], sums[num_strips + i], range.num_rows);
      write_strip(sums[i], range.num_rows, strip + i, gate.out, {hidden, gate.out});
    }
  }
}

// Of the smaller of the two passes over the experts; more than 8 rows count as so many more.
std::int64_t bytes_of_work(std::span<const ExpertWork> work) {
  const PackedMatrix& down = work.front().weights.down;
  std::int64_t cost = 0;
  for (const ExpertWork& item : work) {
    cost += item.num_rows > 0 ? cost_of_strip(item.num_rows) : 0;
  }
  return packed_bytes(down) / 8 * cost;
}

}  // namespace

void linear(const float* x, std::int64_t num_rows, const PackedMatrix& w, float* y) {
  const std::int64_t strips = num_strips(w.out);
  const auto rows_of = [num_rows](std::int64_t /*item*/) { return num_rows; };
  // As in a share of the work, up to 8 rows count as reading alone.
  const std::int64_t num_bytes = packed_bytes(w) / 8 * cost_of_strip(num_rows);
  const std::int64_t num_blocks = ceil_div(num_rows, block_rows);
  const std::int64_t num_threads = num_threads_for(num_bytes, ceil_div(strips, most_panels) * num_blocks);
  const std::int64_t num_parts = num_parts_for(num_threads, strips * num_blocks);
  const std::uint64_t call = next_call();
  run_parts(num_threads, num_parts, [&](std::int64_t part) {
    const Share share(1, rows_of, strips, part, num_parts);
    share.for_each(1, rows_of, [&](std::int64_t /*item*/, const StripRange& range) {
      multiply_strips(w, {x + range.first_row * w.in, w.in}, {y + range.first_row * w.out, w.out}, range, call);
    });
  });
}

void linear_of_heads(const HeadInputs& x, std::int64_t num_rows, const HeadMatrices& w, float* y) {
  const std::int64_t strips = num_strips(w.out);
  const std::int64_t num_blocks = ceil_div(num_rows, block_rows);
  const std::int64_t num_bytes = w.num_heads * packed_bytes(w.type, w.out, w.in) / 8 * cost_of_strip(num_rows);
  const std::int64_t num_items = w.num_heads * num_blocks;
  const std::int64_t y_stride = w.num_heads * w.out;
  const std::uint64_t call = next_call();
  run_parts(num_threads_for(num_bytes, num_items), num_items, [&](std::int64_t item) {
    const std::int64_t head = item / num_blocks;
    const std::int64_t first_row = item % num_blocks * block_rows;
    const StripRange range{first_row, std::min(block_rows, num_rows - first_row), 0, strips};
    multiply_strips(w.of_head(head), {x.data + first_row * x.row_stride + head * x.head_stride, x.row_stride},
                    {y + first_row * y_stride + head * w.out, y_stride}, range, call);
  });
}

void expert_ffn(std::span<const ExpertWork> work, const float* x, float* hidden, float* y) {
  const auto num_items = static_cast<std::int64_t>(work.size());
  const auto item_at = [work](std::int64_t item) -> const ExpertWork& { return work[static_cast<std::size_t>(item)]; };
  const auto rows_of = [&item_at](std::int64_t item) { return item_at(item).num_rows; };
  const std::int64_t width = work.front().weights.gate.in;
  const std::int64_t hidden_width = work.front().weights.gate.out;
  const std::int64_t num_threads = num_threads_for(bytes_of_work(work), num_strips(hidden_width) * num_items);
  const std::int64_t num_gated_parts = num_parts_for(num_threads, num_strips(hidden_width) * num_items);
  const std::int64_t num_down_parts = num_parts_for(num_threads, num_strips(width) * num_items);

  const std::uint64_t gated_call = next_call();
  const std::uint64_t down_call = next_call();
  // Two passes over all experts, since any thread may need all of `hidden`. Weights are read once in either.
  run_parts(num_threads, num_gated_parts, [&](std::int64_t part) {
    const Share share(num_items, rows_of, num_strips(hidden_width), part, num_gated_parts);
    share.for_each(num_items, rows_of, [&](std::int64_t item, const StripRange& range) {
      const std::int64_t row = item_at(item).first_row + range.first_row;
      multiply_gated(item_at(item).weights, x + row * width, hidden + row * hidden_width, range, gated_call);
    });
  });
  run_parts(num_threads, num_down_parts, [&](std::int64_t part) {
    const Share share(num_items, rows_of, num_strips(width), part, num_down_parts);
    share.for_each(num_items, rows_of, [&](std::int64_t item, const StripRange& range) {
      const std::int64_t row = item_at(item).first_row + range.first_row;
      multiply_strips(item_at(item).weights.down, {hidden + row * hidden_width, hidden_width}, {y + row * width, width},
                      range, down_call);
    });
  });
}

void multiply_heads(const HeadProduct& product) {
  simd_form().multiply_heads(product);
}

}  // namespace metro::cpu
