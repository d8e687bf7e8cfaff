// The inner loops with AVX-512: 12 rows of a panel have their sums in 24 of 32 registers. Compiled with -mavx512f
// (see CMakeLists.txt); called only where the CPU has it.
#include "kernels/cpu/simd_form_body.hpp"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace metro::cpu {

#ifdef __AVX512F__

namespace {

struct Avx512 {
  using Vector = __m512;
  using Words = std::uint32_t __attribute__((vector_size(64)));
  static constexpr int lanes = 16;
  static constexpr int largest_tile = 12;
  static constexpr int widest_tile = largest_tile;
  static constexpr int most_sums = 28;

  static Vector load(const float* source) { return _mm512_loadu_ps(source); }
  static void store(const Vector& vector, float* destination) { _mm512_storeu_ps(destination, vector); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector fused(const Vector& a, const Vector& b, const Vector& c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector product(const Vector& a, const Vector& b) { return _mm512_mul_ps(a, b); }
  static void widen(const float* weights, Vector& first, Vector& second) {
    first = load(weights);
    second = load(weights + lanes);
  }
  static void widen(const std::uint16_t* weights, Vector& first, Vector& second) {
    // By operators: GCC 12 takes the instruction's own name for the use of an uninitialised variable.
    const auto words = reinterpret_cast<Words>(_mm512_loadu_si512(weights));
    first = reinterpret_cast<Vector>(words << 16);
    second = reinterpret_cast<Vector>(words & 0xffff0000U);
  }
  static void widen(const std::int8_t* weights, Vector& first, Vector& second) {
    first = widen_half(weights);
    second = widen_half(weights + lanes);
  }
  static Vector widen_half(const std::int8_t* weights) {
    // With a mask for all lanes, which compilers drop: GCC 12 complains as above about the plain names.
    constexpr __mmask16 all = 0xffff;
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
    return _mm512_maskz_cvtepi32_ps(all, _mm512_maskz_cvtepi8_epi32(all, bytes));
  }
  // e4m3 as fp16, whose exponent has one bit more and another zero: 2^-8 of the weight, also of subnormal ones.
  static void widen(const E4m3* weights, Vector& first, Vector& second) {
    constexpr __mmask16 all = 0xffff;
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
    const __m256i fields = _mm256_set1_epi16(static_cast<short>(0xbf80));
    const __m256i even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(words, 8), 1), fields);
    const __m256i odd = _mm256_and_si256(_mm256_srai_epi16(words, 1), fields);
    first = _mm512_maskz_cvtph_ps(all, even);
    second = _mm512_maskz_cvtph_ps(all, odd);
  }
  static void widen_pair(const E2m1Pair* step, int /*pair*/, Vector& first, Vector& second) {
    constexpr __mmask16 all = 0xffff;
    const Vector halves = _mm512_setr_ps(0.0F, 0.25F, 0.5F, 0.75F, 1.0F, 1.5F, 2.0F, 3.0F, -0.0F, -0.25F, -0.5F, -0.75F,
                                         -1.0F, -1.5F, -2.0F, -3.0F);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(step));
    const __m512i codes = _mm512_maskz_cvtepu8_epi32(all, bytes);
    first = _mm512_maskz_permutexvar_ps(all, codes, halves);  // by the last 4 bits
    second = _mm512_maskz_permutexvar_ps(all, _mm512_maskz_srli_epi32(all, codes, 4), halves);
  }
  static Vector doubled_powers(const std::int8_t* exponents) {
    constexpr __mmask16 all = 0xffff;
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(exponents));
    const __m512i biased = _mm512_add_epi32(_mm512_maskz_cvtepi8_epi32(all, bytes), _mm512_set1_epi32(128));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(all, biased, 23));
  }
  static void in_column_order(float* sums) {
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const Vector even = load(sums);
    const Vector odd = load(sums + lanes);
    store(_mm512_permutex2var_ps(even, low, odd), sums);
    store(_mm512_permutex2var_ps(even, high, odd), sums + lanes);
  }
};

}  // namespace

const SimdForm* avx512_form() {
  return &form_of<Avx512>;
}

#else

const SimdForm* avx512_form() {
  return nullptr;
}

#endif

}  // namespace metro::cpu
