// Weights of a linear layer, packed for reading in the order in which they are used: panels of panel_columns output
// columns, inside a panel the reduction index ascends and the columns lie side by side:
//   element (out n, in k) of panel n / P at k * P + n % P,  P = panel_columns; missing columns of the last panel are 0.
// A panel of int8 is followed by the fp32 scales of its P columns (0 for missing ones), and a panel with biases ends
// with those of its P columns, fp32 likewise, so that one pointer is enough.
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
  return panel_columns * in * bytes_of(type);
}
// Of scales and of biases, each at the end of a panel.
inline constexpr std::int64_t panel_column_bytes = panel_columns * std::int64_t{sizeof(float)};
constexpr std::int64_t panel_bytes(StoredType type, std::int64_t in, bool has_bias = false) {
  const std::int64_t scale_bytes = type == StoredType::int8 ? panel_column_bytes : 0;
  return panel_weight_bytes(type, in) + scale_bytes + (has_bias ? panel_column_bytes : 0);
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

// What belongs to the output columns of a matrix, [out] each.
struct ColumnNumbers {
  const float* scales = nullptr;  // of int8, and of no other type
  const float* biases = nullptr;  // nullptr: there are none
};

// source [out, in] row-major, stored type `type`; destination: packed_bytes(type, out, in, has biases) bytes, all
// written, aligned to 16 bytes. All are host memory; runs on the calling thread and needs no Kokkos. The view returned
// refers to `destination`. Panels are independent: a matrix may be packed in pieces of whole panels (panel_columns rows
// of `source`), each to its place.
PackedMatrix pack(StoredType type, std::int64_t out, std::int64_t in, const void* source, const ColumnNumbers& columns,
                  void* destination);
inline PackedMatrix pack(StoredType type, std::int64_t out, std::int64_t in, const void* source, void* destination) {
  return pack(type, out, in, source, {}, destination);
}

}  // namespace metro
