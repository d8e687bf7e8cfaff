// Rows of inputs in the order in which the strip product reads them.
#pragma once

#include "kernels/cpu/head_product.hpp"

#include <cstdint>
#include <vector>

namespace metro::cpu {

// Elements (r, k) of num_rows rows, k < depth, to destination + k * destination_stride + r.
void transpose_rows(const ConstRows& rows, std::int64_t num_rows, std::int64_t depth, float* destination,
                    std::int64_t destination_stride);

// A block of rows in tiles. A tile of n rows begins at (its first row) * in and holds element (row, k) at k * n + row:
// one step of the reduction finds its values side by side, whatever the length of a row.
// One per thread; its memory grows to the largest block and is used again.
class RowTiles {
 public:
  // num_rows rows of `in` elements, which must live as long as the result is used: one row alone is not copied. `call`
  // tells calls of a kernel apart: within one, rows that were packed last are not packed again.
  const float* pack(const ConstRows& rows, std::int64_t num_rows, std::int64_t in, std::int64_t largest_tile,
                    std::uint64_t call);

 private:
  std::vector<float> memory_;
  const float* packed_rows_ = nullptr;
  std::uint64_t packed_call_ = 0;
};

// The one of the calling thread.
RowTiles& row_tiles_of_thread();

// A number for a call of a kernel, not 0.
std::uint64_t next_call();

}  // namespace metro::cpu
