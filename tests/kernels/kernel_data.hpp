// Data for kernel tests: reproducible numbers, arrays that host code and kernels share, weights in all stored types,
// comparison by bits.
#pragma once

#include "base/stored_type.hpp"
#include "kernels/buffer.hpp"
#include "kernels/packed_matrix.hpp"
#include "support/scaled_codes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace metro::test {

// An array that a test fills and reads and kernels read and write, wherever their memory is. What either side does is
// seen by the other: host values go to the kernels when data() is called, and come back when they are next looked at.
template <class T>
class Array {
 public:
  Array() = default;
  Array(const std::string& label, std::int64_t size) : Array(label, std::vector<T>(static_cast<std::size_t>(size))) {}
  Array(const std::string& label, std::vector<T> values)
      : values_(std::move(values)), memory_(label, static_cast<std::int64_t>(values_.size())) {
    copy_from_host<T>(memory_.data(), values_);
  }

  std::int64_t size() const { return memory_.size(); }
  // For kernels; those that are launched with the second may write.
  const T* data() const {
    upload();
    return memory_.data();
  }
  T* data() {
    upload();
    newer_ = Side::kernels;
    return memory_.data();
  }
  // For the test.
  std::span<const T> span() const {
    fetch();
    return values_;
  }
  std::span<T> span() {
    fetch();
    newer_ = Side::host;
    return values_;
  }
  const T& operator[](std::int64_t i) const { return span()[static_cast<std::size_t>(i)]; }
  T& operator[](std::int64_t i) { return span()[static_cast<std::size_t>(i)]; }

 private:
  enum class Side { none, host, kernels };

  void upload() const {
    if (newer_ == Side::host) {
      copy_from_host<T>(memory_.data(), values_);
      newer_ = Side::none;
    }
  }
  void fetch() const {
    if (newer_ == Side::kernels) {
      copy_to_host<T>(values_, memory_.data());
      newer_ = Side::none;
    }
  }

  mutable std::vector<T> values_;
  Buffer<T> memory_;
  mutable Side newer_ = Side::none;
};

template <class T>
Array<T> array_of(const std::vector<T>& values) {
  return {"values", values};
}

// Numbers in [-scale, scale) with full mantissas; the generator's values are fixed by the standard.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : generator_(seed) {}

  float next(float scale = 1.0F) { return scale * (static_cast<float>(generator_() >> 8) * 0x1p-23F - 1.0F); }

  Array<float> array(std::int64_t size, float scale = 1.0F) {
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& value : values) {
      value = next(scale);
    }
    return array_of(values);
  }

 private:
  std::mt19937 generator_;
};

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// Values 0..count-1 from `first` on.
inline std::span<const float> part(const Array<float>& values, std::int64_t first, std::int64_t count) {
  return values.span().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

// A weight matrix as its values and packed. For bf16 the values are those that bf16 can hold, for int8 the integers,
// for fp8 and mxfp4 the products of weights and scales.
struct Weights {
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<float> values;  // [out, in]
  std::vector<float> scales;  // [out] of int8
  std::vector<float> biases;  // [out] or none
  Array<std::byte> memory;
  PackedMatrix packed;

  float at(std::int64_t n, std::int64_t k) const { return values[static_cast<std::size_t>(n * in + k)]; }
};

// Inputs of a matrix that are at least `in`, as many as the type can have.
inline std::int64_t inputs_for(StoredType type, std::int64_t in) {
  return type == StoredType::mxfp4 ? (in + 31) / 32 * 32 : in;
}

// Packs codes that follow from values between -1 and 1, and scales that differ from block to block; `weights.values`
// become what these stand for.
inline void pack_fp8(Weights& weights, ColumnNumbers columns, std::byte* memory) {
  const std::int64_t row_blocks = (weights.in + 127) / 128;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  for (std::int64_t panel = 0; panel < (weights.out + 31) / 32; ++panel) {
    for (std::int64_t block = 0; block < row_blocks; ++block) {
      scales.push_back(static_cast<float>(1 + (panel / 4 + 3 * block) % 7) * 0.0007F);
    }
  }
  for (std::int64_t i = 0; i < weights.out * weights.in; ++i) {
    float& value = weights.values[static_cast<std::size_t>(i)];
    const auto size = static_cast<unsigned>(std::abs(value) * 126.9F);
    codes.push_back(static_cast<std::uint8_t>(value < 0.0F ? size | 128U : size));
    const std::int64_t scale_idx = i / weights.in / 32 * row_blocks + i % weights.in / 128;
    const auto scale = static_cast<double>(scales[static_cast<std::size_t>(scale_idx)]);
    value = static_cast<float>(e4m3_value(codes.back()) * scale);
  }
  columns.scales = scales.data();
  weights.packed = pack(StoredType::fp8, weights.out, weights.in, codes.data(), columns, memory);
}

inline void pack_mxfp4(Weights& weights, ColumnNumbers columns, std::byte* memory) {
  std::vector<std::uint8_t> pairs(weights.values.size() / 2, 0);
  std::vector<std::int8_t> exponents;
  for (std::size_t i = 0; i < weights.values.size(); ++i) {
    if (i % 32 == 0) {
      exponents.push_back(static_cast<std::int8_t>(-3 - static_cast<int>(i / 32 % 5)));
    }
    float& value = weights.values[i];
    const unsigned code = static_cast<unsigned>(std::abs(value) * 7.99F) | (value < 0.0F ? 8U : 0U);
    pairs[i / 2] = static_cast<std::uint8_t>(pairs[i / 2] | code << (i % 2 * 4));
    value = static_cast<float>(std::ldexp(e2m1_value(code), exponents.back()));
  }
  columns.exponents = exponents.data();
  weights.packed = pack(StoredType::mxfp4, weights.out, weights.in, pairs.data(), columns, memory);
}

// Of int8: values from -1 to 1, scales that differ from column to column.
inline Weights weights_of(StoredType type, std::int64_t out, std::int64_t in, const std::vector<float>& values,
                          const std::vector<float>& biases = {}) {
  Weights weights{out, in, values, {}, biases, {}, {}};
  std::vector<std::byte> memory(static_cast<std::size_t>(packed_bytes(type, out, in, !biases.empty())));
  ColumnNumbers columns{nullptr, biases.empty() ? nullptr : biases.data()};
  const auto keep = [&](const PackedMatrix& packed) {
    weights.memory = {"weights", std::move(memory)};
    weights.packed = packed;
    weights.packed.data = weights.memory.data();
  };
  if (type == StoredType::f32) {
    keep(pack(type, out, in, weights.values.data(), columns, memory.data()));
    return weights;
  }
  if (type == StoredType::fp8 || type == StoredType::mxfp4) {
    (type == StoredType::fp8 ? pack_fp8 : pack_mxfp4)(weights, columns, memory.data());
    keep(weights.packed);
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
    columns.scales = weights.scales.data();
    keep(pack(type, out, in, integers.data(), columns, memory.data()));
    return weights;
  }
  std::vector<std::uint16_t> words;
  for (float& value : weights.values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    words.push_back(static_cast<std::uint16_t>(bits >> 16));
    value = widen_bf16(words.back());
  }
  keep(pack(type, out, in, words.data(), columns, memory.data()));
  return weights;
}

inline Weights random_weights(StoredType type, std::int64_t out, std::int64_t in, Numbers& numbers,
                              bool has_bias = false) {
  std::vector<float> values(static_cast<std::size_t>(out * in));
  for (float& value : values) {
    value = numbers.next();
  }
  std::vector<float> biases(has_bias ? static_cast<std::size_t>(out) : 0);
  for (float& bias : biases) {
    bias = numbers.next();
  }
  return weights_of(type, out, in, values, biases);
}

// The definition of a linear layer's element: one chain of fused multiply-adds, for int8 times the scale, plus the
// bias.
inline float chain(const float* x, const Weights& weights, std::int64_t column) {
  float sum = 0.0F;
  for (std::int64_t k = 0; k < weights.in; ++k) {
    sum = std::fma(x[k], weights.at(column, k), sum);
  }
  const auto idx = static_cast<std::size_t>(column);
  sum = weights.scales.empty() ? sum : sum * weights.scales[idx];
  return weights.biases.empty() ? sum : sum + weights.biases[idx];
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
