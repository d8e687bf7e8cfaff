// Weights of a linear layer, packed for reading in the order in which they are used: panels of panel_columns output
// columns, inside a panel the reduction index ascends and the columns lie side by side:
//   element (out n, in k) of panel n / P at k * P + n % P,  P = panel_columns; missing columns of the last panel are 0.
// A panel of int8 is followed by the fp32 scales of its P columns (0 for missing ones), and a panel with biases ends
// with those of its P columns, fp32 likewise, so that one pointer is enough.
//
// A panel of fp8 is followed by one fp32 scale per 128 inputs, filled up with 0 to a multiple of 64 bytes: its columns
// lie in one row of blocks, since 128 is a multiple of P. A panel of mxfp4 consists of blocks of 32 inputs, each 512
// bytes of weights and then the 32 exponents of its columns; byte j of an input holds column j in its lower half and
// column j + 16 in its upper half. `in` is a multiple of 32 there. The weight of either is value * scale, rounded once
// to fp32 (of mxfp4 that is exact), and then like any other: the same bits as of an f32 matrix of these numbers.
#pragma once

#include "base/stored_type.hpp"

#include <cstddef>
#include <cstdint>

namespace metro {

inline constexpr std::int64_t panel_columns = 32;

// A view; the memory belongs to whoever packed it.
struct PackedMatrix {
  const void* data = nullptr;
  StoredType type = StoredType::bf16;
  std::int64_t out = 0;  // output columns N
  std::int64_t in = 0;   // reduction length K
  bool has_bias = false;
};

inline bool same_shape(const PackedMatrix& a, const PackedMatrix& b) {
  return a.type == b.type && a.out == b.out && a.in == b.in && a.has_bias == b.has_bias;
}

// From the begin of a panel to that of its scales, and to that of the next panel.
constexpr std::int64_t panel_weight_bytes(StoredType type, std::int64_t in) {
  const std::int64_t exponent_bytes = type == StoredType::mxfp4 ? panel_columns * (in / mxfp4_block) : 0;
  return bytes_of(type, panel_columns * in) + exponent_bytes;
}
// Of scales of int8 and of biases, each at the end of a panel.
inline constexpr std::int64_t panel_column_bytes = panel_columns * std::int64_t{sizeof(float)};
constexpr std::int64_t panel_scale_bytes(StoredType type, std::int64_t in) {
  if (type == StoredType::fp8) {
    constexpr std::int64_t line_scales = 16;
    const std::int64_t num_blocks = (in + fp8_block - 1) / fp8_block;
    return (num_blocks + line_scales - 1) / line_scales * line_scales * std::int64_t{sizeof(float)};
  }
  return type == StoredType::int8 ? panel_column_bytes : 0;
}
constexpr std::int64_t panel_bytes(StoredType type, std::int64_t in, bool has_bias = false) {
  return panel_weight_bytes(type, in) + panel_scale_bytes(type, in) + (has_bias ? panel_column_bytes : 0);
}
constexpr std::int64_t panel_bytes(const PackedMatrix& w) {
  return panel_bytes(w.type, w.in, w.has_bias);
}

constexpr std::int64_t packed_bytes(StoredType type, std::int64_t out, std::int64_t in, bool has_bias = false) {
  return (out + panel_columns - 1) / panel_columns * panel_bytes(type, in, has_bias);
}
constexpr std::int64_t packed_bytes(const PackedMatrix& w) {
  return packed_bytes(w.type, w.out, w.in, w.has_bias);
}

// Elements of panels of fp8 and of mxfp4, which are told from bytes by their types.
struct E4m3 {
  std::uint8_t bits;
};
struct E2m1Pair {
  std::uint8_t bits;
};

// What belongs to the output columns of a matrix.
struct ColumnNumbers {
  const float* scales = nullptr;           // of int8 [out], of fp8 [panels, ceil(in / 128)], and of no other type
  const float* biases = nullptr;           // [out]; nullptr: there are none
  const std::int8_t* exponents = nullptr;  // of mxfp4 [out, in / 32], and of no other type
};

// source [out, in] row-major, stored type `type` (mxfp4: two weights to a byte, the first in its lower half);
// destination: packed_bytes(type, out, in, has biases) bytes, all written, aligned to 16 bytes. All are host memory;
// runs on the calling thread and needs no Kokkos. The view returned refers to `destination`. Panels are independent: a
// matrix may be packed in pieces of whole panels (panel_columns rows of `source`), each to its place.
PackedMatrix pack(StoredType type, std::int64_t out, std::int64_t in, const void* source, const ColumnNumbers& columns,
                  void* destination);
inline PackedMatrix pack(StoredType type, std::int64_t out, std::int64_t in, const void* source, void* destination) {
  return pack(type, out, in, source, {}, destination);
}

}  // namespace metro
