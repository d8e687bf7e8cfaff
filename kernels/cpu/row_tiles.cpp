#include "kernels/cpu/row_tiles.hpp"

#include "kernels/cpu/strip_product.hpp"

#include <atomic>
#include <cstring>

namespace metro::cpu {

namespace {

constexpr std::int64_t side = 4;  // of the squares that are transposed at a time
using Quad = float __attribute__((vector_size(side * sizeof(float))));

Quad load_quad(const float* source) {
  Quad quad;
  std::memcpy(&quad, source, sizeof quad);
  return quad;
}

void store_quad(const Quad& quad, float* destination) {
  std::memcpy(destination, &quad, sizeof quad);
}

// Elements (r, k), r and k below `side`, of rows that lie `in_stride` apart, to destination + k * out_stride + r.
void transpose_square(const float* rows, std::int64_t in_stride, std::int64_t out_stride, float* destination) {
  const Quad a = load_quad(rows);
  const Quad b = load_quad(rows + in_stride);
  const Quad c = load_quad(rows + 2 * in_stride);
  const Quad d = load_quad(rows + 3 * in_stride);
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store_quad(__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), destination);
  store_quad(__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7), destination + out_stride);
  store_quad(__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), destination + 2 * out_stride);
  store_quad(__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7), destination + 3 * out_stride);
}

}  // namespace

void transpose_rows(const ConstRows& rows, std::int64_t num_rows, std::int64_t depth, float* destination,
                    std::int64_t destination_stride) {
  const std::int64_t square_rows = num_rows / side * side;
  const std::int64_t square_depth = depth / side * side;
  for (std::int64_t k = 0; k < square_depth; k += side) {
    for (std::int64_t r = 0; r < square_rows; r += side) {
      transpose_square(rows.data + r * rows.stride + k, rows.stride, destination_stride,
                       destination + k * destination_stride + r);
    }
    for (std::int64_t r = square_rows; r < num_rows; ++r) {
      for (std::int64_t i = 0; i < side; ++i) {
        destination[(k + i) * destination_stride + r] = rows.data[r * rows.stride + k + i];
      }
    }
  }
  for (std::int64_t k = square_depth; k < depth; ++k) {
    for (std::int64_t r = 0; r < num_rows; ++r) {
      destination[k * destination_stride + r] = rows.data[r * rows.stride + k];
    }
  }
}

const float* RowTiles::pack(const ConstRows& rows, std::int64_t num_rows, std::int64_t in, std::int64_t largest_tile,
                            std::uint64_t call) {
  if (num_rows == 1) {
    return rows.data;
  }
  if (packed_call_ == call && packed_rows_ == rows.data) {
    return memory_.data();
  }
  packed_call_ = call;
  packed_rows_ = rows.data;
  const auto size = static_cast<std::size_t>(num_rows * in);
  if (memory_.size() < size) {
    memory_.resize(size);
  }
  for (std::int64_t row = 0; row < num_rows;) {
    const std::int64_t tile = rows_of_tile(num_rows - row, largest_tile);
    transpose_rows({rows.data + row * rows.stride, rows.stride}, tile, in, memory_.data() + row * in, tile);
    row += tile;
  }
  return memory_.data();
}

RowTiles& row_tiles_of_thread() {
  static thread_local RowTiles tiles;
  return tiles;
}

std::uint64_t next_call() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace metro::cpu
