// Linear layers that every head of a row has one of its own.
#pragma once

#include "kernels/packed_matrix.hpp"

#include <cstddef>
#include <cstdint>

namespace metro {

// A packed matrix [out, in] per head, one behind the other. A view.
struct HeadMatrices {
  const void* data = nullptr;
  StoredType type = StoredType::bf16;
  std::int64_t num_heads = 0;
  std::int64_t out = 0;
  std::int64_t in = 0;

  std::int64_t bytes_of_head() const { return packed_bytes(type, out, in); }
  PackedMatrix of_head(std::int64_t head) const {
    return {static_cast<const std::byte*>(data) + head * bytes_of_head(), type, out, in};
  }
  // Heads `first` and on as one matrix: of each head, padded_out() columns, of which those beyond `out` give 0.
  std::int64_t padded_out() const { return (out + panel_columns - 1) / panel_columns * panel_columns; }
  PackedMatrix of_heads(std::int64_t first, std::int64_t count) const {
    return {of_head(first).data, type, count * padded_out(), in};
  }
};

// Where the inputs of heads lie: head h of row r at data + r * row_stride + h * head_stride.
struct HeadInputs {
  const float* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
};

// y[r, h, n] = sum over k of x[r, h, k] * w[h][n, k], by fused multiply-add in ascending k from 0, as in linear().
// y [num_rows, num_heads, out]. All is memory of kernels; weights without scales.
void linear_of_heads(const HeadInputs& x, std::int64_t num_rows, const HeadMatrices& w, float* y);

}  // namespace metro
