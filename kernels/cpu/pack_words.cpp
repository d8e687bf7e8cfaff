#include "kernels/cpu/pack_words.hpp"

#include "kernels/cpu_settings.hpp"
#include "kernels/packed_matrix.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define METRO_WORDS_AVX512 __attribute__((target("avx512f,avx512bw")))
#endif

namespace metro::cpu {

#ifdef METRO_WORDS_AVX512

namespace {

constexpr std::int64_t steps = 32;  // words of a line
static_assert(panel_columns == 32);

// rows[r], lane l, element j: the words of rows r and r + 16 at reduction step 8 l + j. Writes those steps: one line
// each, 16 pairs of words transposed as 32-bit elements and then put into the order of columns.
METRO_WORDS_AVX512 void write_steps(const __m512i* rows, std::uint16_t* destination) {
  __m512i quads[16];  // [4 g + j]: in lane l, rows 4 g .. 4 g + 3 at step 8 l + j
  for (int g = 0; g < 4; ++g) {
    const __m512i* four = rows + 4 * g;
    const __m512i a = _mm512_unpacklo_epi32(four[0], four[1]);
    const __m512i b = _mm512_unpackhi_epi32(four[0], four[1]);
    const __m512i c = _mm512_unpacklo_epi32(four[2], four[3]);
    const __m512i d = _mm512_unpackhi_epi32(four[2], four[3]);
    quads[4 * g] = _mm512_unpacklo_epi64(a, c);
    quads[4 * g + 1] = _mm512_unpackhi_epi64(a, c);
    quads[4 * g + 2] = _mm512_unpacklo_epi64(b, d);
    quads[4 * g + 3] = _mm512_unpackhi_epi64(b, d);
  }
  // Even words are columns 0 .. 15, odd ones 16 .. 31.
  const __m512i columns = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24,
                                           22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  for (int j = 0; j < 4; ++j) {
    const __m512i low_01 = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0x44);
    const __m512i low_23 = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0x44);
    const __m512i high_01 = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0xee);
    const __m512i high_23 = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0xee);
    const __m512i lanes[4] = {_mm512_shuffle_i32x4(low_01, low_23, 0x88), _mm512_shuffle_i32x4(low_01, low_23, 0xdd),
                              _mm512_shuffle_i32x4(high_01, high_23, 0x88),
                              _mm512_shuffle_i32x4(high_01, high_23, 0xdd)};
    for (int lane = 0; lane < 4; ++lane) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(destination + (8 * lane + j) * panel_columns),
                          _mm512_permutexvar_epi16(columns, lanes[lane]));
    }
  }
}

METRO_WORDS_AVX512 void pack_steps(const std::uint16_t* source, std::int64_t in, std::uint16_t* destination) {
  __m512i first[16], second[16];  // steps 0 .. 3 and 4 .. 7 of each lane
  for (int row = 0; row < 16; ++row) {
    const __m512i a = _mm512_loadu_si512(source + row * in);
    const __m512i b = _mm512_loadu_si512(source + (row + 16) * in);
    first[row] = _mm512_unpacklo_epi16(a, b);
    second[row] = _mm512_unpackhi_epi16(a, b);
  }
  write_steps(first, destination);
  write_steps(second, destination + 4 * panel_columns);
}

bool can_pack_words() {
  static const bool supported = __builtin_cpu_supports("avx512bw") != 0;
  return supported && simd_level() == SimdLevel::avx512;
}

}  // namespace

std::int64_t pack_words(const std::uint16_t* source, std::int64_t in, std::uint16_t* destination) {
  constexpr std::uintptr_t line_bytes = 64;
  if (!can_pack_words() || reinterpret_cast<std::uintptr_t>(destination) % line_bytes != 0) {
    return 0;
  }
  std::int64_t k = 0;
  for (; k + steps <= in; k += steps) {
    pack_steps(source + k, in, destination + k * panel_columns);
  }
  return k;
}

#else

std::int64_t pack_words(const std::uint16_t* /*source*/, std::int64_t /*in*/, std::uint16_t* /*destination*/) {
  return 0;
}

#endif

}  // namespace metro::cpu
