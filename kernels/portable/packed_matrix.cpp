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

// One panel of mxfp4: `columns` rows of `in` / 2 bytes, and as many of `in` / 32 exponents.
void pack_pair_panel(const std::uint8_t* source, const std::int8_t* exponents, std::int64_t columns, std::int64_t in,
                     std::uint8_t* destination) {
  using Bytes = Square<std::uint8_t>;
  static_assert(Bytes::side == mxfp4_block / 2 && 2 * Bytes::side == panel_columns);
  for (std::int64_t block = 0; block < in / mxfp4_block; ++block) {
    Bytes halves[2] = {};  // of the columns; after transposing, row i holds inputs 2 i and 2 i + 1
    for (std::int64_t column = 0; column < columns; ++column) {
      std::memcpy(&halves[column / Bytes::side].rows[column % Bytes::side],
                  source + (column * (in / mxfp4_block) + block) * vector_bytes, vector_bytes);
    }
    transpose(halves[0]);
    transpose(halves[1]);
    for (int i = 0; i < Bytes::side; ++i) {
      const Bytes::Row low = halves[0].rows[i];
      const Bytes::Row high = halves[1].rows[i];
      write_past_cache(destination + 2 * i * vector_bytes, (low & std::uint8_t{0x0f}) | (high << 4));
      write_past_cache(destination + (2 * i + 1) * vector_bytes, (low >> 4) | (high & std::uint8_t{0xf0}));
    }
    destination += mxfp4_block * vector_bytes;
    std::int8_t of_columns[panel_columns] = {};
    for (std::int64_t column = 0; column < columns; ++column) {
      of_columns[column] = exponents[column * (in / mxfp4_block) + block];
    }
    std::memcpy(destination, of_columns, sizeof of_columns);
    destination += sizeof of_columns;
  }
}

void pack_numbers(const float* numbers, std::int64_t columns, std::byte* destination) {
  float of_panel[panel_columns] = {};
  std::copy_n(numbers, columns, of_panel);
  std::memcpy(destination, of_panel, sizeof of_panel);
}

void pack_block_scales(const float* scales, std::int64_t in, std::byte* destination) {
  const auto used_bytes = static_cast<std::size_t>((in + fp8_block - 1) / fp8_block) * sizeof(float);
  std::memcpy(destination, scales, used_bytes);
  std::memset(destination + used_bytes, 0,
              static_cast<std::size_t>(panel_scale_bytes(StoredType::fp8, in)) - used_bytes);
}

// The weights of the panel that begins at output column `first`, and their exponents.
void pack_weights(const PackedMatrix& packed, const void* source, const ColumnNumbers& numbers, std::int64_t first,
                  std::byte* panel) {
  const std::int64_t in = packed.in;
  const std::int64_t columns = std::min(packed.out - first, panel_columns);
  const auto pack_as = [&]<class T>(T* destination) {
    pack_panel(static_cast<const T*>(source) + first * in, columns, in, destination);
  };
  switch (packed.type) {
    case StoredType::bf16:
      return pack_as(reinterpret_cast<std::uint16_t*>(panel));
    case StoredType::f32:
      return pack_as(reinterpret_cast<std::uint32_t*>(panel));
    case StoredType::int8:
    case StoredType::fp8:
      return pack_as(reinterpret_cast<std::uint8_t*>(panel));
    case StoredType::mxfp4:
      return pack_pair_panel(static_cast<const std::uint8_t*>(source) + first * in / 2,
                             numbers.exponents + first * (in / mxfp4_block), columns, in,
                             reinterpret_cast<std::uint8_t*>(panel));
  }
}

}  // namespace

PackedMatrix pack(StoredType type, std::int64_t out, std::int64_t in, const void* source, const ColumnNumbers& columns,
                  void* destination) {
  METRO_REQUIRE(out >= 0 && in >= 0, std::to_string(out) + " x " + std::to_string(in));
  METRO_REQUIRE((type == StoredType::int8 || type == StoredType::fp8) == (columns.scales != nullptr) &&
                    (type == StoredType::mxfp4) == (columns.exponents != nullptr),
                "int8 and fp8 weights, and no others, have scales, mxfp4 ones exponents");
  METRO_REQUIRE(type != StoredType::mxfp4 || in % mxfp4_block == 0, "mxfp4 weights fill blocks of 32");
  METRO_REQUIRE(reinterpret_cast<std::uintptr_t>(destination) % vector_bytes == 0, "destination is not aligned");
  const PackedMatrix packed{destination, type, out, in, columns.biases != nullptr};
  auto* panel = static_cast<std::byte*>(destination);
  for (std::int64_t first = 0; first < out; first += panel_columns) {
    const std::int64_t num_columns = std::min(out - first, panel_columns);
    pack_weights(packed, source, columns, first, panel);
    std::byte* const scales = panel + panel_weight_bytes(type, in);
    if (type == StoredType::int8) {
      pack_numbers(columns.scales + first, num_columns, scales);
    } else if (type == StoredType::fp8) {
      const std::int64_t num_blocks = (in + fp8_block - 1) / fp8_block;
      pack_block_scales(columns.scales + first / panel_columns * num_blocks, in, scales);
    }
    panel += panel_bytes(packed);
    if (columns.biases != nullptr) {
      pack_numbers(columns.biases + first, num_columns, panel - panel_column_bytes);
    }
  }
  finish_writes();
  return packed;
}

}  // namespace metro
