// Data for kernel tests: reproducible numbers, weights in both stored types, comparison by bits.
#pragma once

#include "base/stored_type.hpp"
#include "kernels/buffer.hpp"
#include "kernels/packed_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace metro::test {

// Numbers in [-scale, scale) with full mantissas; the generator's values are fixed by the standard.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : generator_(seed) {}

  float next(float scale = 1.0F) { return scale * (static_cast<float>(generator_() >> 8) * 0x1p-23F - 1.0F); }

  Buffer<float> buffer(std::int64_t size, float scale = 1.0F) {
    Buffer<float> values("values", size);
    for (float& value : values.span()) {
      value = next(scale);
    }
    return values;
  }

 private:
  std::mt19937 generator_;
};

template <class T>
Buffer<T> buffer_of(const std::vector<T>& values) {
  Buffer<T> buffer("values", static_cast<std::int64_t>(values.size()));
  std::copy(values.begin(), values.end(), buffer.data());
  return buffer;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// Values 0..count-1 from `first` on.
inline std::span<const float> part(const Buffer<float>& values, std::int64_t first, std::int64_t count) {
  return std::span<const float>(values.data() + first, static_cast<std::size_t>(count));
}

// A weight matrix as its values and packed. For bf16 the values are those that bf16 can hold, for int8 the integers.
struct Weights {
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<float> values;  // [out, in]
  std::vector<float> scales;  // [out] of int8
  RawBuffer memory;
  PackedMatrix packed;

  float at(std::int64_t n, std::int64_t k) const { return values[static_cast<std::size_t>(n * in + k)]; }
};

// Of int8: values from -1 to 1, scales that differ from column to column.
inline Weights weights_of(StoredType type, std::int64_t out, std::int64_t in, const std::vector<float>& values) {
  Weights weights{out, in, values, {}, RawBuffer("weights", packed_bytes(type, out, in)), {}};
  if (type == StoredType::f32) {
    weights.packed = pack(type, out, in, weights.values.data(), weights.memory.data());
    return weights;
  }
  if (type == StoredType::int8) {
    std::vector<std::int8_t> integers;
    for (float& value : weights.values) {
      value = std::round(value * 127.0F);
      integers.push_back(static_cast<std::int8_t>(value));
    }
    for (std::int64_t n = 0; n < out; ++n) {
      weights.scales.push_back(static_cast<float>(1 + n % 5) / 127.0F);
    }
    weights.packed = pack(type, out, in, integers.data(), weights.scales.data(), weights.memory.data());
    return weights;
  }
  std::vector<std::uint16_t> words;
  for (float& value : weights.values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    words.push_back(static_cast<std::uint16_t>(bits >> 16));
    value = widen_bf16(words.back());
  }
  weights.packed = pack(type, out, in, words.data(), weights.memory.data());
  return weights;
}

inline Weights random_weights(StoredType type, std::int64_t out, std::int64_t in, Numbers& numbers) {
  std::vector<float> values(static_cast<std::size_t>(out * in));
  for (float& value : values) {
    value = numbers.next();
  }
  return weights_of(type, out, in, values);
}

// The definition of a linear layer's element: one chain of fused multiply-adds, for int8 times the scale.
inline float chain(const float* x, const Weights& weights, std::int64_t column) {
  float sum = 0.0F;
  for (std::int64_t k = 0; k < weights.in; ++k) {
    sum = std::fma(x[k], weights.at(column, k), sum);
  }
  return weights.scales.empty() ? sum : sum * weights.scales[static_cast<std::size_t>(column)];
}

// The fixed tree over 16 partial sums, written out.
inline float tree(const std::vector<float>& p) {
  const float a = ((p[0] + p[8]) + (p[4] + p[12])) + ((p[2] + p[10]) + (p[6] + p[14]));
  const float b = ((p[1] + p[9]) + (p[5] + p[13])) + ((p[3] + p[11]) + (p[7] + p[15]));
  return a + b;
}

// |computed - exact| in units in the last place of a float of exact's size.
inline double error_in_ulp(float computed, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(static_cast<double>(computed) - exact) / ulp;
}

}  // namespace metro::test
