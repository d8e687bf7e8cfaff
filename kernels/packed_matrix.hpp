// Weights of a linear layer, packed for reading in the order in which they are used: panels of panel_columns output
// columns, inside a panel the reduction index ascends and the columns lie side by side:
//   element (out n, in k) at ((n / P) * in + k) * P + n % P,  P = panel_columns; missing columns of the last panel are
//   0.
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
};

constexpr std::int64_t packed_bytes(StoredType type, std::int64_t out, std::int64_t in) {
  return (out + panel_columns - 1) / panel_columns * panel_columns * in * bytes_of(type);
}

// source [out, in] row-major, stored type `type`; destination: packed_bytes(type, out, in) bytes, all written. Both are
// host memory; runs on the calling thread and needs no Kokkos. The view returned refers to `destination`.
PackedMatrix pack(StoredType type, std::int64_t out, std::int64_t in, const void* source, void* destination);

}  // namespace metro
