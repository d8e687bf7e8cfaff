#include "kernels/cpu/row_tiles.hpp"

#include "kernels/cpu/strip_product.hpp"

#include <algorithm>

namespace metro::cpu {

namespace {

void pack_tile(const float* rows, std::int64_t num_rows, std::int64_t in, float* destination) {
  constexpr std::int64_t steps = 16;  // a cache line of every row at a time
  for (std::int64_t first = 0; first < in; first += steps) {
    const std::int64_t last = std::min(first + steps, in);
    for (std::int64_t r = 0; r < num_rows; ++r) {
      const float* source = rows + r * in;
      for (std::int64_t k = first; k < last; ++k) {
        destination[k * num_rows + r] = source[k];
      }
    }
  }
}

}  // namespace

const float* RowTiles::pack(const float* rows, std::int64_t num_rows, std::int64_t in, std::int64_t largest_tile) {
  if (num_rows == 1) {
    return rows;
  }
  const auto size = static_cast<std::size_t>(num_rows * in);
  if (memory_.size() < size) {
    memory_.resize(size);
  }
  for (std::int64_t row = 0; row < num_rows;) {
    const std::int64_t tile = rows_of_tile(num_rows - row, largest_tile);
    pack_tile(rows + row * in, tile, in, memory_.data() + row * in);
    row += tile;
  }
  return memory_.data();
}

RowTiles& row_tiles_of_thread() {
  static thread_local RowTiles tiles;
  return tiles;
}

}  // namespace metro::cpu
