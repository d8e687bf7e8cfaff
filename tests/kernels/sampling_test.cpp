#include "kernels/sampling.hpp"

#include "base/error.hpp"
#include "kernel_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

using metro::test::Array;
using metro::test::array_of;
using metro::test::Numbers;
using metro::test::part;
using metro::test::same_bits;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::int32_t argmax_of(const std::vector<float>& logits) {
  const Array<float> values = array_of(logits);
  Array<std::int32_t> token("token", 1);
  metro::argmax(values.data(), 1, values.size(), token.data());
  return token[0];
}

}  // namespace

TEST_CASE("argmax takes the largest logit, of equal ones the lowest index") {
  CHECK(argmax_of({-3.0F, -1.0F, -2.0F}) == 1);
  CHECK(argmax_of({1.0F, 5.0F, 5.0F, 5.0F}) == 1);
  CHECK(argmax_of({-0.0F, 0.0F}) == 0);
  CHECK(argmax_of({-infinity, -1e38F, -infinity}) == 1);
  CHECK(argmax_of({-infinity, infinity}) == 1);
  CHECK(argmax_of({4.0F}) == 0);
}

TEST_CASE("argmax takes a NaN only where there is nothing else") {
  CHECK(argmax_of({not_a_number, -infinity, not_a_number}) == 1);
  CHECK(argmax_of({-not_a_number, -1.0F}) == 1);
  CHECK(argmax_of({not_a_number, not_a_number}) == 0);
}

TEST_CASE("argmax agrees with a scan over several rows of a large vocabulary") {
  const std::int64_t vocab = 5003;
  const Array<float> logits = Numbers(1).array(4 * vocab, 20.0F);
  Array<std::int32_t> tokens("tokens", 4);

  metro::argmax(logits.data(), 4, vocab, tokens.data());

  for (std::int64_t r = 0; r < 4; ++r) {
    const auto row = part(logits, r * vocab, vocab);
    CHECK(tokens[r] == std::max_element(row.begin(), row.end()) - row.begin());
  }
}

TEST_CASE("log_softmax agrees with double precision and its probabilities sum to 1") {
  const std::int64_t vocab = GENERATE(1, 2, 17, 5003);
  const Array<float> logits = Numbers(2).array(vocab, 20.0F);
  Array<float> logprobs("logprobs", vocab);

  metro::log_softmax(logits.data(), 1, vocab, logprobs.data());

  double sum = 0;
  for (const float logit : logits.span()) {
    sum += std::exp(static_cast<double>(logit));
  }
  double total = 0;
  for (std::int64_t i = 0; i < vocab; ++i) {
    const double exact = static_cast<double>(logits[i]) - std::log(sum);
    // Two subtractions of numbers up to 64, and the relative error of the sum (vocab / 16 additions of exponentials).
    CHECK(std::abs(static_cast<double>(logprobs[i]) - exact) <= 64 * 0x1p-23 + 320 * 0x1p-24);
    total += std::exp(static_cast<double>(logprobs[i]));
  }
  CHECK(total == Approx(1.0).epsilon(1e-5));
}

TEST_CASE("log_softmax follows its definition bit for bit where exponentials are exact") {
  // All logits equal: every exponential is 1, the sum is the vocabulary.
  const Array<float> logits = array_of(std::vector<float>(64, 3.5F));
  Array<float> logprobs("logprobs", 64);

  metro::log_softmax(logits.data(), 1, 64, logprobs.data());

  CHECK(same_bits(logprobs.span(), std::vector<float>(64, static_cast<float>(-std::log(64.0)))));
}

TEST_CASE("log_softmax gives a row the same bits alone, in a batch and in place") {
  const std::int64_t vocab = 131;
  Array<float> logits = Numbers(3).array(5 * vocab, 10.0F);
  Array<float> together("logprobs", 5 * vocab);
  Array<float> alone("logprobs", vocab);

  metro::log_softmax(logits.data(), 5, vocab, together.data());

  for (std::int64_t r = 0; r < 5; ++r) {
    metro::log_softmax(logits.data() + r * vocab, 1, vocab, alone.data());
    CHECK(same_bits(alone.span(), part(together, r * vocab, vocab)));
  }
  metro::log_softmax(logits.data(), 5, vocab, logits.data());
  CHECK(same_bits(logits.span(), together.span()));
}

TEST_CASE("log_softmax gives an excluded token -infinity") {
  const Array<float> logits = array_of<float>({0.0F, -infinity, 0.0F});
  Array<float> logprobs("logprobs", 3);

  metro::log_softmax(logits.data(), 1, 3, logprobs.data());

  CHECK(logprobs[1] == -infinity);
  CHECK(logprobs[0] == static_cast<float>(-std::log(2.0)));
}

TEST_CASE("top_logprobs is a stable descending sort") {
  const std::int64_t vocab = 301;
  const std::int64_t num_top = GENERATE(0, 1, 20, 301);
  Array<float> logprobs = Numbers(4).array(2 * vocab);
  for (float& value : logprobs.span()) {
    value = std::floor(value * 8.0F);  // many ties
  }
  Array<std::int32_t> ids("ids", 2 * num_top);
  Array<float> values("values", 2 * num_top);

  metro::top_logprobs(logprobs.data(), 2, vocab, num_top, ids.data(), values.data());

  for (std::int64_t r = 0; r < 2; ++r) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(vocab));
    std::iota(order.begin(), order.end(), 0);
    const float* row = logprobs.span().data() + r * vocab;
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
    for (std::int64_t i = 0; i < num_top; ++i) {
      CHECK(ids[r * num_top + i] == order[static_cast<std::size_t>(i)]);
      CHECK(values[r * num_top + i] == row[order[static_cast<std::size_t>(i)]]);
    }
  }
}

TEST_CASE("sampling_weights are exponentials of the distance from the largest, over the temperature") {
  const std::int64_t vocab = 1009;
  const double temperature = GENERATE(0.01, 0.3, 1.0, 7.5);
  Array<float> logits = Numbers(5).array(2 * vocab, 20.0F);
  Array<float> weights("weights", 2 * vocab);

  metro::sampling_weights(logits.data(), 2, vocab, temperature, weights.data());

  for (std::int64_t r = 0; r < 2; ++r) {
    const auto row = part(logits, r * vocab, vocab);
    const double top = static_cast<double>(*std::max_element(row.begin(), row.end()));
    for (std::int64_t i = 0; i < vocab; ++i) {
      const double distance = (static_cast<double>(logits[r * vocab + i]) - top) / temperature;
      const double weight = static_cast<double>(weights[r * vocab + i]);
      // The error of exp and of rounding its argument, which is at most 104 in size where the result is not 0.
      CHECK(std::abs(weight - std::exp(distance)) <= std::exp(distance) * (2 + 104) * 0x1p-24 + 0x1p-149);
    }
  }
  metro::sampling_weights(logits.data(), 2, vocab, temperature, logits.data());
  CHECK(same_bits(logits.span(), weights.span()));
}

TEST_CASE("sampling_weights of the largest is 1 and of NaN 0, also where differences do not exist") {
  const auto weights_of = [](const std::vector<float>& values, double temperature) {
    Array<float> row = array_of(values);
    metro::sampling_weights(row.data(), 1, row.size(), temperature, row.data());
    return std::vector<float>(row.span().begin(), row.span().end());
  };

  CHECK(weights_of({infinity, 3.0F, infinity, -infinity}, 1.0) == std::vector<float>{1.0F, 0.0F, 1.0F, 0.0F});
  CHECK(weights_of({-infinity, not_a_number, -infinity}, 1.0) == std::vector<float>{1.0F, 0.0F, 1.0F});
  CHECK(weights_of({not_a_number, 2.0F, -infinity}, 0.5) == std::vector<float>{0.0F, 1.0F, 0.0F});
  CHECK(weights_of({not_a_number, not_a_number}, 1.0) == std::vector<float>{0.0F, 0.0F});
  CHECK(weights_of({3e38F, -3e38F, 3e38F}, 1e-300) == std::vector<float>{1.0F, 0.0F, 1.0F});
  CHECK(weights_of({3e38F, -3e38F, 0.0F}, 1e300) == std::vector<float>{1.0F, 1.0F, 1.0F});
}

TEST_CASE("descending order_codes are the order of top_logprobs") {
  const std::int64_t vocab = 301;
  Array<float> values = Numbers(6).array(vocab);
  for (float& value : values.span()) {
    value = std::floor(value * 8.0F);  // many ties
  }
  values[7] = not_a_number;
  values[8] = -0.0F;
  values[9] = 0.0F;
  values[10] = -infinity;
  Array<std::uint64_t> codes("codes", vocab);
  Array<std::int32_t> ids("ids", vocab);
  Array<float> sorted("values", vocab);

  metro::order_codes(values.data(), 1, vocab, codes.data());

  metro::top_logprobs(values.data(), 1, vocab, vocab, ids.data(), sorted.data());
  std::sort(codes.span().begin(), codes.span().end(), std::greater<>());
  for (std::int64_t i = 0; i < vocab; ++i) {
    CHECK(metro::id_of_order_code(codes[i]) == ids[i]);
  }
}

TEST_CASE("sampling kernels without rows do nothing, and impossible sizes are bugs") {
  metro::argmax(nullptr, 0, 5, nullptr);
  metro::log_softmax(nullptr, 0, 5, nullptr);
  metro::top_logprobs(nullptr, 0, 5, 2, nullptr, nullptr);

  metro::sampling_weights(nullptr, 0, 5, 1.0, nullptr);
  metro::order_codes(nullptr, 0, 5, nullptr);

  CHECK_THROWS_AS(metro::argmax(nullptr, 0, 0, nullptr), metro::Bug);
  CHECK_THROWS_AS(metro::sampling_weights(nullptr, 0, 5, 0.0, nullptr), metro::Bug);
  CHECK_THROWS_AS(metro::top_logprobs(nullptr, 0, 5, 6, nullptr, nullptr), metro::Bug);
}

TEST_CASE("pick takes one value of each row") {
  const metro::test::Array<float> values = metro::test::array_of<float>({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
  const metro::test::Array<std::int32_t> ids = metro::test::array_of<std::int32_t>({2, 0});
  metro::test::Array<float> picked("picked", 2);

  metro::pick(values.data(), 2, 3, ids.data(), picked.data());

  CHECK(picked[0] == 3.0F);
  CHECK(picked[1] == 4.0F);
}
