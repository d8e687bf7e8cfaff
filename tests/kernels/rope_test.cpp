// RoPE: which elements make a pair, and which stay as they are.
#include "kernels/attention.hpp"

#include "kernel_data.hpp"

#include <catch2/catch.hpp>

#include <vector>

using metro::test::Array;
using metro::test::array_of;
using metro::test::Numbers;
using metro::test::same_bits;

TEST_CASE("RoPE rotates pairs that are half a head apart") {
  const std::int64_t head_dim = 10;
  const std::int64_t half = 5;
  Numbers numbers(5);
  Array<float> x = numbers.array(3 * 2 * head_dim);
  const std::vector<float> before(x.span().begin(), x.span().end());
  const Array<float> cos = numbers.array(8 * half);
  const Array<float> sin = numbers.array(8 * half);
  const auto positions = array_of<std::int32_t>({7, 0, 3});

  metro::rope(x.data(), positions.data(), 3, {2, head_dim}, cos.data(), sin.data());

  std::vector<float> expected(before.size());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::int64_t d = i % head_dim;
    const std::int64_t angle = positions[i / (2 * head_dim)] * half + d % half;
    const float other = before[static_cast<std::size_t>(d < half ? i + half : i - half)];
    const float own_part = before[static_cast<std::size_t>(i)] * cos[angle];
    const float other_part = other * sin[angle];
    expected[static_cast<std::size_t>(i)] = d < half ? own_part - other_part : own_part + other_part;
  }
  CHECK(same_bits(x.span(), expected));
}

TEST_CASE("RoPE rotates neighbours inside wider heads and leaves what lies between them alone") {
  const std::int64_t dims = 6, head_stride = 10, row_stride = 25;
  Numbers numbers(6);
  Array<float> x = numbers.array(3 * row_stride);
  const std::vector<float> before(x.span().begin(), x.span().end());
  const Array<float> cos = numbers.array(4 * dims / 2);
  const Array<float> sin = numbers.array(4 * dims / 2);
  const auto positions = array_of<std::int32_t>({1, -1, 3});

  metro::rope(x.data() + 4, positions.data(), 3, {2, dims, metro::RopePairs::neighbours, head_stride, row_stride},
              cos.data(), sin.data());

  std::vector<float> expected = before;
  for (const std::int64_t row : {0, 2}) {
    for (const std::int64_t head : {0, 1}) {
      for (std::int64_t pair = 0; pair < dims / 2; ++pair) {
        const auto a = static_cast<std::size_t>(row * row_stride + head * head_stride + 4 + 2 * pair);
        const std::int64_t angle = positions[row] * (dims / 2) + pair;
        expected[a] = before[a] * cos[angle] - before[a + 1] * sin[angle];
        expected[a + 1] = before[a + 1] * cos[angle] + before[a] * sin[angle];
      }
    }
  }
  CHECK(same_bits(x.span(), expected));
}

TEST_CASE("RoPE by a quarter turn swaps the halves of a head") {
  Array<float> x = array_of<float>({1, 2, 3, 4});
  const auto cos = array_of<float>({0, 0});
  const auto sin = array_of<float>({1, 1});
  const auto positions = array_of<std::int32_t>({0});

  metro::rope(x.data(), positions.data(), 1, {1, 4}, cos.data(), sin.data());

  CHECK(same_bits(x.span(), std::vector<float>{-3, -4, 1, 2}));
}
