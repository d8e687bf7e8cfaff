#include "kernels/cpu/host_products.hpp"

#include "kernels/cpu/row_tiles.hpp"
#include "kernels/cpu/strip_product.hpp"
#include "kernels/cpu/team.hpp"
#include "kernels/portable/math.hpp"

namespace metro::cpu {

namespace {

// Sums of a block of rows and one panel.
struct StripSums {
  alignas(64) float values[block_rows][panel_columns];
};

const void* panel_of(const PackedMatrix& w, std::int64_t strip) {
  return static_cast<const std::byte*>(w.data) + strip * panel_bytes(w.type, w.in);
}

void multiply(const StripForm& form, StoredType type, const StripProduct& product) {
  switch (type) {
    case StoredType::bf16:
      return form.multiply_bf16(product);
    case StoredType::f32:
      return form.multiply_f32(product);
    case StoredType::int8:
      return form.multiply_int8(product);
  }
}

// x: the block of rows in tiles.
void multiply(const PackedMatrix& w, std::int64_t strip, const float* x, std::int64_t num_rows, StripSums& sums) {
  multiply(strip_form(), w.type, {x, num_rows, w.in, panel_of(w, strip), sums.values[0]});
}

// Writes columns of strip `strip` to the rows of y [*, out].
void write_strip(const StripSums& sums, std::int64_t num_rows, std::int64_t strip, std::int64_t out, float* y) {
  const std::int64_t first_column = strip * panel_columns;
  const std::int64_t num_columns = std::min(panel_columns, out - first_column);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    std::copy_n(sums.values[r], num_columns, y + r * out + first_column);
  }
}

// y = w(x) for the strips of one block of rows.
void multiply_strips(const PackedMatrix& w, const float* x, float* y, const StripRange& range) {
  const float* tiles = row_tiles_of_thread().pack(x, range.num_rows, w.in, strip_form().largest_tile);
  StripSums sums;
  for (std::int64_t strip = range.first; strip < range.last; ++strip) {
    multiply(w, strip, tiles, range.num_rows, sums);
    write_strip(sums, range.num_rows, strip, w.out, y);
  }
}

// hidden = silu(gate(x)) * up(x) for the strips of one block of rows.
void multiply_gated(const ExpertWeights& weights, const float* x, float* hidden, const StripRange& range) {
  const PackedMatrix& gate = weights.gate;
  const PackedMatrix& up = weights.up;
  const float* tiles = row_tiles_of_thread().pack(x, range.num_rows, gate.in, strip_form().largest_tile);
  StripSums sums;
  StripSums up_sums;
  for (std::int64_t strip = range.first; strip < range.last; ++strip) {
    multiply(gate, strip, tiles, range.num_rows, sums);
    multiply(up, strip, tiles, range.num_rows, up_sums);
    for (std::int64_t r = 0; r < range.num_rows; ++r) {
      for (std::int64_t column = 0; column < panel_columns; ++column) {
        sums.values[r][column] = portable::silu(sums.values[r][column]) * up_sums.values[r][column];
      }
    }
    write_strip(sums, range.num_rows, strip, gate.out, hidden);
  }
}

// Of the smaller of the two passes over the experts; more than 8 rows count as so many more.
std::int64_t bytes_of_work(std::span<const ExpertWork> work) {
  const PackedMatrix& down = work.front().weights.down;
  std::int64_t cost = 0;
  for (const ExpertWork& item : work) {
    cost += item.num_rows > 0 ? cost_of_strip(item.num_rows) : 0;
  }
  return packed_bytes(down.type, down.out, down.in) / 8 * cost;
}

}  // namespace

void linear(const float* x, std::int64_t num_rows, const PackedMatrix& w, float* y) {
  const std::int64_t strips = num_strips(w.out);
  const auto rows_of = [num_rows](std::int64_t /*item*/) { return num_rows; };
  // As in a share of the work, up to 8 rows count as reading alone.
  const std::int64_t num_bytes = packed_bytes(w.type, w.out, w.in) / 8 * cost_of_strip(num_rows);
  const std::int64_t num_threads = num_threads_for(num_bytes, strips);
  run_threads(num_threads, [&](std::int64_t thread_idx) {
    const Share share(1, rows_of, strips, thread_idx, num_threads);
    share.for_each(1, rows_of, [&](std::int64_t /*item*/, const StripRange& range) {
      multiply_strips(w, x + range.first_row * w.in, y + range.first_row * w.out, range);
    });
  });
}

void expert_ffn(std::span<const ExpertWork> work, const float* x, float* hidden, float* y) {
  const auto num_items = static_cast<std::int64_t>(work.size());
  const auto item_at = [work](std::int64_t item) -> const ExpertWork& { return work[static_cast<std::size_t>(item)]; };
  const auto rows_of = [&item_at](std::int64_t item) { return item_at(item).num_rows; };
  const std::int64_t width = work.front().weights.gate.in;
  const std::int64_t hidden_width = work.front().weights.gate.out;
  const std::int64_t num_threads = num_threads_for(bytes_of_work(work), num_strips(hidden_width) * num_items);

  // Two passes over all experts, since any thread may need all of `hidden`. Weights are read once in either.
  run_threads(num_threads, [&](std::int64_t thread_idx) {
    const Share share(num_items, rows_of, num_strips(hidden_width), thread_idx, num_threads);
    share.for_each(num_items, rows_of, [&](std::int64_t item, const StripRange& range) {
      const std::int64_t row = item_at(item).first_row + range.first_row;
      multiply_gated(item_at(item).weights, x + row * width, hidden + row * hidden_width, range);
    });
  });
  run_threads(num_threads, [&](std::int64_t thread_idx) {
    const Share share(num_items, rows_of, num_strips(width), thread_idx, num_threads);
    share.for_each(num_items, rows_of, [&](std::int64_t item, const StripRange& range) {
      const std::int64_t row = item_at(item).first_row + range.first_row;
      multiply_strips(item_at(item).weights.down, hidden + row * hidden_width, y + row * width, range);
    });
  });
}

}  // namespace metro::cpu
