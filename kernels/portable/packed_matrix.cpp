// Packing of weights on the host, once at load.
#include "kernels/packed_matrix.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace metro {

namespace {

// One panel: columns first_column .. first_column + columns - 1. Several reduction steps at a time, so that each source
// row is read in whole words of a cache line.
template <class T>
void pack_panel(const T* source, std::int64_t columns, std::int64_t in, T* destination) {
  constexpr std::int64_t steps = sizeof(T) == 1 ? 16 : 8;
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

void pack_scales(const float* scales, std::int64_t columns, std::byte* destination) {
  float of_panel[panel_columns] = {};
  std::copy_n(scales, columns, of_panel);
  std::memcpy(destination, of_panel, sizeof of_panel);
}

template <class T>
void pack_panels(const PackedMatrix& packed, const void* source, const float* scales, void* destination) {
  const std::int64_t in = packed.in;
  auto* panel = static_cast<std::byte*>(destination);
  for (std::int64_t first = 0; first < packed.out; first += panel_columns) {
    const std::int64_t columns = std::min(packed.out - first, panel_columns);
    pack_panel(static_cast<const T*>(source) + first * in, columns, in, reinterpret_cast<T*>(panel));
    if (scales != nullptr) {
      pack_scales(scales + first, columns, panel + panel_weight_bytes(packed.type, in));
    }
    panel += panel_bytes(packed.type, in);
  }
}

}  // namespace

PackedMatrix pack(StoredType type, std::int64_t out, std::int64_t in, const void* source, const float* scales,
                  void* destination) {
  METRO_REQUIRE(out >= 0 && in >= 0, std::to_string(out) + " x " + std::to_string(in));
  METRO_REQUIRE((type == StoredType::int8) == (scales != nullptr), "int8 weights, and no others, have scales");
  const PackedMatrix packed{destination, type, out, in};
  switch (type) {
    case StoredType::bf16:
      pack_panels<std::uint16_t>(packed, source, scales, destination);
      break;
    case StoredType::f32:
      pack_panels<std::uint32_t>(packed, source, scales, destination);
      break;
    case StoredType::int8:
      pack_panels<std::int8_t>(packed, source, scales, destination);
      break;
  }
  return packed;
}

}  // namespace metro
