// Packing of weights on the host, once at load.
#include "kernels/packed_matrix.hpp"

#include "base/error.hpp"

#include <cstring>
#include <string>

namespace metro {

namespace {

// One panel: columns first_column .. first_column + columns - 1. Eight reduction steps at a time, so that each source
// row is read in whole words of a cache line.
template <class T>
void pack_panel(const T* source, std::int64_t columns, std::int64_t in, T* destination) {
  constexpr std::int64_t steps = 8;
  std::int64_t k = 0;
  for (; k + steps <= in && columns == panel_columns; k += steps) {
    T block[panel_columns][steps];
    for (std::int64_t column = 0; column < panel_columns; ++column) {
      std::memcpy(block[column], source + column * in + k, sizeof block[column]);
    }
    for (std::int64_t step = 0; step < steps; ++step) {
      for (std::int64_t column = 0; column < panel_columns; ++column) {
        destination[(k + step) * panel_columns + column] = block[column][step];
      }
    }
  }
  for (; k < in; ++k) {
    for (std::int64_t column = 0; column < panel_columns; ++column) {
      destination[k * panel_columns + column] = column < columns ? source[column * in + k] : T{0};
    }
  }
}

template <class T>
void pack_panels(std::int64_t out, std::int64_t in, const void* source, void* destination) {
  for (std::int64_t first = 0; first < out; first += panel_columns) {
    const std::int64_t columns = out - first < panel_columns ? out - first : panel_columns;
    pack_panel(static_cast<const T*>(source) + first * in, columns, in, static_cast<T*>(destination) + first * in);
  }
}

}  // namespace

PackedMatrix pack(StoredType type, std::int64_t out, std::int64_t in, const void* source, void* destination) {
  METRO_REQUIRE(out >= 0 && in >= 0, std::to_string(out) + " x " + std::to_string(in));
  if (type == StoredType::bf16) {
    pack_panels<std::uint16_t>(out, in, source, destination);
  } else {
    pack_panels<std::uint32_t>(out, in, source, destination);
  }
  return {destination, type, out, in};
}

}  // namespace metro
