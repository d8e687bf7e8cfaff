// The inner loops in plain C++, for any CPU.
#include "kernels/cpu/simd_form_body.hpp"

#include <bit>
#include <cmath>

namespace metro::cpu {

namespace {

struct Scalar {
  static constexpr int lanes = 1;
  static constexpr int largest_tile = 4;
  static constexpr int widest_tile = 1;
  static constexpr int most_sums = 16;
  using Vector = float;

  static Vector load(const float* source) { return *source; }
  static void store(Vector value, float* destination) { *destination = value; }
  static Vector broadcast(float x) { return x; }
  static Vector fused(Vector a, Vector b, Vector c) { return std::fma(a, b, c); }
  static Vector product(Vector a, Vector b) { return a * b; }
  static void widen(const float* weights, Vector& first, Vector& second) {
    first = weights[0];
    second = weights[1];
  }
  static void widen(const std::uint16_t* weights, Vector& first, Vector& second) {
    first = widen_bf16(weights[0]);
    second = widen_bf16(weights[1]);
  }
  static void widen(const std::int8_t* weights, Vector& first, Vector& second) {
    first = static_cast<float>(weights[0]);
    second = static_cast<float>(weights[1]);
  }
  static void widen(const E4m3* weights, Vector& first, Vector& second) {
    first = widen_e4m3(weights[0].bits) * 0x1p-8F;
    second = widen_e4m3(weights[1].bits) * 0x1p-8F;
  }
  static void widen_pair(const E2m1Pair* step, int pair, Vector& first, Vector& second) {
    constexpr int half = static_cast<int>(panel_columns) / 2;
    const int shift = 2 * pair < half ? 0 : 4;
    first = widen_e2m1(static_cast<std::uint32_t>(step[2 * pair % half].bits) >> shift) * 0.5F;
    second = widen_e2m1(static_cast<std::uint32_t>(step[2 * pair % half + 1].bits) >> shift) * 0.5F;
  }
  static Vector doubled_powers(const std::int8_t* exponents) { return power_of_two(exponents[0] + 1); }
  static void in_column_order(float* /*sums*/) {}  // two columns are in order
};

}  // namespace

const SimdForm* scalar_form() {
  return &form_of<Scalar>;
}

}  // namespace metro::cpu
