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
