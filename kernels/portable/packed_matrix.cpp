// Packing of weights on the host, once at load, while the source is in the cache. Squares of one vector's width are
// transposed in registers and written past the cache: the result is not read before decoding, and fetching each of its
// lines first would double the traffic.
#include "kernels/packed_matrix.hpp"

#include "base/error.hpp"
#include "kernels/cpu/pack_words.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace metro {

namespace {

constexpr std::int64_t vector_bytes = 16;

template <class T>
struct Square {
  static constexpr int side = vector_bytes / static_cast<int>(sizeof(T));
  typedef T Row __attribute__((vector_size(vector_bytes)));
  Row rows[side];
};

// a[first], b[first], a[first + 1], b[first + 1], ...
template <class T, int first, int... i>
typename Square<T>::Row zip(typename Square<T>::Row a, typename Square<T>::Row b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, (first + i / 2 + (i % 2) * Square<T>::side)...);
}

// Zipping the upper half of the rows with the lower one moves every element by one bit of its place; after log2(side)
// times, rows and columns have changed places.
template <class T>
void transpose(Square<T>& square) {
  constexpr int side = Square<T>::side;
  constexpr std::make_integer_sequence<int, side> all;
  for (int done = 1; done < side; done *= 2) {
    Square<T> zipped;
    for (int i = 0; i < side / 2; ++i) {
      zipped.rows[2 * i] = zip<T, 0>(square.rows[i], square.rows[i + side / 2], all);
      zipped.rows[2 * i + 1] = zip<T, side / 2>(square.rows[i], square.rows[i + side / 2], all);
    }
    square = zipped;
  }
}

// Aligned to vector_bytes.
template <class Row>
void write_past_cache(void* destination, const Row& row) {
#if defined(__SSE2__)
  __m128i bits;
  std::memcpy(&bits, &row, sizeof bits);
  _mm_stream_si128(static_cast<__m128i*>(destination), bits);
#else
  std::memcpy(destination, &row, sizeof row);
#endif
}

// What was written past the cache is seen by other threads before whatever this thread writes next.
void finish_writes() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// One panel: `columns` rows of the source, each `in` long.
template <class T>
void pack_panel(const T* source, std::int64_t columns, std::int64_t in, T* destination) {
  constexpr int side = Square<T>::side;
  constexpr int num_squares = panel_columns / side;
  std::int64_t k = 0;
  if constexpr (std::is_same_v<T, std::uint16_t>) {
    k = columns == panel_columns ? cpu::pack_words(source, in, destination) : 0;
  }
  for (; k + side <= in && columns == panel_columns; k += side) {
    Square<T> squares[num_squares];
    for (int s = 0; s < num_squares; ++s) {
      for (int i = 0; i < side; ++i) {
        std::memcpy(&squares[s].rows[i], source + (s * side + i) * in + k, vector_bytes);
      }
      transpose(squares[s]);
    }
    for (int i = 0; i < side; ++i) {
      for (int s = 0; s < num_squares; ++s) {
        write_past_cache(destination + (k + i) * panel_columns + s * side, squares[s].rows[i]);
      }
    }
  }
  for (; k < in; ++k) {
    for (std::int64_t column = 0; column < panel_columns; ++column) {
      destination[k * panel_columns + column] = column < columns ? source[column * in + k] : T{0};
    }
  }
}

void pack_numbers(const float* numbers, std::int64_t columns, std::byte* destination) {
  float of_panel[panel_columns] = {};
  std::copy_n(numbers, columns, of_panel);
  std::memcpy(destination, of_panel, sizeof of_panel);
}

template <class T>
void pack_panels(const PackedMatrix& packed, const void* source, const ColumnNumbers& numbers, void* destination) {
  const std::int64_t in = packed.in;
  auto* panel = static_cast<std::byte*>(destination);
  for (std::int64_t first = 0; first < packed.out; first += panel_columns) {
    const std::int64_t columns = std::min(packed.out - first, panel_columns);
    pack_panel(static_cast<const T*>(source) + first * in, columns, in, reinterpret_cast<T*>(panel));
    if (numbers.scales != nullptr) {
      pack_numbers(numbers.scales + first, columns, panel + panel_weight_bytes(packed.type, in));
    }
    panel += panel_bytes(packed);
    if (numbers.biases != nullptr) {
      pack_numbers(numbers.biases + first, columns, panel - panel_column_bytes);
    }
  }
  finish_writes();
}

}  // namespace

PackedMatrix pack(StoredType type, std::int64_t out, std::int64_t in, const void* source, const ColumnNumbers& columns,
                  void* destination) {
  METRO_REQUIRE(out >= 0 && in >= 0, std::to_string(out) + " x " + std::to_string(in));
  METRO_REQUIRE((type == StoredType::int8) == (columns.scales != nullptr), "int8 weights, and no others, have scales");
  METRO_REQUIRE(reinterpret_cast<std::uintptr_t>(destination) % vector_bytes == 0, "destination is not aligned");
  const PackedMatrix packed{destination, type, out, in, columns.biases != nullptr};
  switch (type) {
    case StoredType::bf16:
      pack_panels<std::uint16_t>(packed, source, columns, destination);
      break;
    case StoredType::f32:
      pack_panels<std::uint32_t>(packed, source, columns, destination);
      break;
    case StoredType::int8:
      pack_panels<std::uint8_t>(packed, source, columns, destination);
      break;
  }
  return packed;
}

}  // namespace metro
