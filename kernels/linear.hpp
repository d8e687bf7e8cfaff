// Linear layers, the embedding, and copies of rows.
#pragma once

#include "kernels/packed_matrix.hpp"

#include <cstdint>

namespace metro {

// y[r, n] = sum over k of x[r, k] * w[n, k], fp32, by fused multiply-add in ascending k from 0; for int8 w stands for
// the integers, and the sum is multiplied by the scale of the column. A bias is added to the finished sum. The bits of
// a result depend only on its row of x and its column of w, never on num_rows or threads. x [num_rows, w.in], y
// [num_rows, w.out], row-major.
void linear(const float* x, std::int64_t num_rows, const PackedMatrix& w, float* y);

// y[r, :] = row ids[r] of the packed table [vocab, H], bf16 or f32. ids [num_rows] in 0..vocab-1, or -1: padding, a
// row of zeros; y [num_rows, H].
void embed(const PackedMatrix& table, const std::int32_t* ids, std::int64_t num_rows, float* y);

// y[i] += x[i], [size].
void add(const float* x, std::int64_t size, float* y);

// Where the rows of an array begin, in words of 32 bits: row i at offsets[i], or without offsets at i * stride.
struct RowPlaces {
  const std::int64_t* offsets = nullptr;  // [num_rows], memory of kernels
  std::int64_t stride = 0;
};

// Copies num_rows rows of `width` words of 32 bits, bit for bit: row i of `from` becomes row i of `to`. Rows of `to` do
// not overlap each other nor those of `from`.
void copy_rows(const void* from, const RowPlaces& from_places, void* to, const RowPlaces& to_places,
               std::int64_t num_rows, std::int64_t width);

// y[i, :] = the `width` floats at x + offsets[i]; offsets [num_rows] in floats, y [num_rows, width].
inline void gather_rows(const float* x, const std::int64_t* offsets, std::int64_t num_rows, std::int64_t width,
                        float* y) {
  copy_rows(x, {.offsets = offsets}, y, {.stride = width}, num_rows, width);
}

}  // namespace metro
