// The inner loops with AVX2 and FMA, which builds for x86-64-v3 have everywhere. One or two rows take all columns of
// a panel at once; more rows take halves of it one after the other: 12 sums, two weights, a value and the mask just
// fill the 16 registers.
#include "kernels/cpu/simd_form_body.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#endif

namespace metro::cpu {

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr int lanes = 8;
  static constexpr int largest_tile = 6;
  static constexpr int widest_tile = 2;
  static constexpr int most_sums = 12;

  static Vector load(const float* source) { return _mm256_loadu_ps(source); }
  static void store(const Vector& vector, float* destination) { _mm256_storeu_ps(destination, vector); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector fused(const Vector& a, const Vector& b, const Vector& c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector product(const Vector& a, const Vector& b) { return _mm256_mul_ps(a, b); }
  static void widen(const float* weights, Vector& first, Vector& second) {
    first = load(weights);
    second = load(weights + lanes);
  }
  static void widen(const std::uint16_t* weights, Vector& first, Vector& second) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
    first = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
    second = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-0x10000)));
  }
  static void widen(const std::int8_t* weights, Vector& first, Vector& second) {
    first = widen_half(weights);
    second = widen_half(weights + lanes);
  }
  static Vector widen_half(const std::int8_t* weights) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  // e4m3 as fp16, whose exponent has one bit more and another zero: 2^-8 of the weight, also of subnormal ones.
  static void widen(const E4m3* weights, Vector& first, Vector& second) {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
    const __m128i fields = _mm_set1_epi16(static_cast<short>(0xbf80));
    first = _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(_mm_slli_epi16(words, 8), 1), fields));
    second = _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(words, 1), fields));
  }
  static void widen_pair(const E2m1Pair* step, int pair, Vector& first, Vector& second) {
    first = half_weights(step, 4 * pair);
    second = half_weights(step + lanes, 4 * pair);
  }
  // Bits shift .. shift + 3 of each byte.
  static Vector half_weights(const E2m1Pair* pairs, int shift) {
    const Vector sizes = _mm256_setr_ps(0.0F, 0.25F, 0.5F, 0.75F, 1.0F, 1.5F, 2.0F, 3.0F);
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pairs));
    const __m256i codes = _mm256_srli_epi32(_mm256_cvtepu8_epi32(bytes), shift);
    const __m256i signs = _mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(INT32_MIN));
    return _mm256_or_ps(_mm256_permutevar8x32_ps(sizes, codes), _mm256_castsi256_ps(signs));
  }
  static Vector doubled_powers(const std::int8_t* exponents) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents));
    const __m256i biased = _mm256_add_epi32(_mm256_cvtepi8_epi32(bytes), _mm256_set1_epi32(128));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  static void in_column_order(float* sums) {
    const Vector even = load(sums);
    const Vector odd = load(sums + lanes);
    const Vector low = _mm256_unpacklo_ps(even, odd);   // columns 0..3 and 8..11
    const Vector high = _mm256_unpackhi_ps(even, odd);  // columns 4..7 and 12..15
    store(_mm256_permute2f128_ps(low, high, 0x20), sums);
    store(_mm256_permute2f128_ps(low, high, 0x31), sums + lanes);
  }
};

}  // namespace

const SimdForm* avx2_form() {
  return &form_of<Avx2>;
}

#else

const SimdForm* avx2_form() {
  return nullptr;
}

#endif

}  // namespace metro::cpu
