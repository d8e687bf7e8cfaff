#include "kernels/experts.hpp"
#include "kernels/gate.hpp"

#include "base/error.hpp"
#include "expert_data.hpp"
#include "kernel_data.hpp"
#include "kernels/linear.hpp"
#include "kernels/portable/math.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using metro::ExpertWork;
using metro::StoredType;
using metro::test::Array;
using metro::test::array_of;
using metro::test::Expert;
using metro::test::Numbers;
using metro::test::part;
using metro::test::random_expert;
using metro::test::same_bits;

namespace {

struct Choice {
  Array<std::int32_t> ids;
  Array<float> weights;
};

Choice choose(const std::vector<float>& logits, std::int64_t num_rows, std::int64_t top_k, bool normalise,
              float scale = 1.0F) {
  const Array<float> values = array_of(logits);
  Choice choice{Array<std::int32_t>("ids", num_rows * top_k), Array<float>("weights", num_rows * top_k)};
  metro::gate_top_k(values.data(), num_rows, values.size() / num_rows, top_k, {.normalise = normalise, .scale = scale},
                    nullptr, choice.ids.data(), choice.weights.data());
  return choice;
}

std::vector<std::int32_t> ids_of(const Choice& choice) {
  return {choice.ids.span().begin(), choice.ids.span().end()};
}

}  // namespace

TEST_CASE("the gate's weights are softmax probabilities in descending order") {
  Numbers numbers(1);
  std::vector<float> logits(128);
  for (float& logit : logits) {
    logit = numbers.next(6.0F);
  }

  const Choice choice = choose(logits, 1, 8, false);

  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit));
  }
  std::vector<float> sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::int64_t k = 0; k < 8; ++k) {
    CHECK(logits[static_cast<std::size_t>(choice.ids[k])] == sorted[static_cast<std::size_t>(k)]);
    const double exact = std::exp(static_cast<double>(sorted[static_cast<std::size_t>(k)])) / sum;
    // Rounding of the subtraction (12 * 2^-24), two exponentials, 12 additions, one division.
    CHECK(std::abs(static_cast<double>(choice.weights[k]) - exact) <= 32 * 0x1p-24 * exact);
  }
}

TEST_CASE("normalised weights are divided by their sum in order of choice") {
  const std::vector<float> logits = {0.25F, 1.5F, -2.0F, 1.0F, 0.75F};

  const Choice plain = choose(logits, 1, 3, false);
  const Choice normalised = choose(logits, 1, 3, true);

  const float sum = ((0.0F + plain.weights[0]) + plain.weights[1]) + plain.weights[2];
  CHECK(ids_of(normalised) == std::vector<std::int32_t>{1, 3, 4});
  for (std::int64_t k = 0; k < 3; ++k) {
    CHECK(normalised.weights[k] == plain.weights[k] / sum);
  }
}

TEST_CASE("the scale of the gate multiplies every weight last") {
  const std::vector<float> logits = {0.25F, 1.5F, -2.0F, 1.0F, 0.75F};
  const bool normalise = GENERATE(false, true);

  const Choice plain = choose(logits, 1, 3, normalise);
  const Choice scaled = choose(logits, 1, 3, normalise, 2.5F);

  for (std::int64_t k = 0; k < 3; ++k) {
    CHECK(scaled.weights[k] == plain.weights[k] * 2.5F);
  }
}

TEST_CASE("the gate breaks ties by the lower expert") {
  const Choice choice = choose({1.0F, 3.0F, 3.0F, 1.0F, 3.0F, 1.0F, -0.0F, 0.0F}, 1, 8, false);

  CHECK(ids_of(choice) == std::vector<std::int32_t>{1, 2, 4, 0, 3, 5, 6, 7});
  CHECK(choice.weights[0] == choice.weights[2]);
}

TEST_CASE("equal logits give equal weights exactly") {
  const Choice choice = choose(std::vector<float>(64, -7.25F), 1, 4, true);

  CHECK(ids_of(choice) == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(same_bits(choice.weights.span(), std::vector<float>(4, 0.25F)));
}

TEST_CASE("a NaN logit makes the weights NaN but the chosen experts stay valid and distinct") {
  const float nan = std::numeric_limits<float>::quiet_NaN();

  const Choice one = choose({nan, 1.0F, 2.0F}, 1, 3, true);
  const Choice all = choose({nan, nan, nan}, 1, 2, false);

  CHECK(ids_of(one) == std::vector<std::int32_t>{2, 1, 0});
  CHECK(ids_of(all) == std::vector<std::int32_t>{0, 1});
  CHECK(std::isnan(one.weights[0]));
  CHECK(std::isnan(all.weights[1]));
}

TEST_CASE("the gate treats every row by itself") {
  Numbers numbers(2);
  std::vector<float> logits(7 * 21);
  for (float& logit : logits) {
    logit = numbers.next(3.0F);
  }

  const Choice together = choose(logits, 7, 5, true);

  for (std::size_t r = 0; r < 7; ++r) {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(r * 21);
    const Choice alone = choose({first, first + 21}, 1, 5, true);
    const auto row = static_cast<std::int64_t>(r) * 5;
    CHECK(same_bits(alone.weights.span(), part(together.weights, row, 5)));
    CHECK(std::equal(alone.ids.span().begin(), alone.ids.span().end(), together.ids.span().data() + row));
  }
}

TEST_CASE("an expert is its three linear layers, bit for bit, for any number of experts and rows") {
  const StoredType gate_up =
      GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  const StoredType down =
      GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  const std::int64_t width = metro::test::inputs_for(gate_up, 40);
  const std::int64_t hidden_width = metro::test::inputs_for(down, 35);
  const std::vector<std::int64_t> row_counts = GENERATE(
      std::vector<std::int64_t>{3}, std::vector<std::int64_t>{1, 0, 2, 5}, std::vector<std::int64_t>{0, 50, 1, 0, 99},
      std::vector<std::int64_t>(70, 2));  // more experts than fit one launch
  const bool has_bias = GENERATE(false, true);
  Numbers numbers(3);
  std::vector<Expert> experts;
  std::vector<ExpertWork> work;
  std::int64_t num_rows = 0;
  for (const std::int64_t rows : row_counts) {
    experts.push_back(random_expert(gate_up, down, width, hidden_width, numbers, has_bias));
    work.push_back({experts.back().packed(), num_rows, rows});
    num_rows += rows;
  }
  const Array<float> x = numbers.array(num_rows * width);
  Array<float> hidden("hidden", num_rows * hidden_width);
  Array<float> y("y", num_rows * width);

  metro::expert_ffn(work, x.data(), hidden.data(), y.data());

  for (const ExpertWork& item : work) {
    Array<float> gate("gate", item.num_rows * hidden_width);
    Array<float> up("up", item.num_rows * hidden_width);
    Array<float> expected("expected", item.num_rows * width);
    metro::linear(x.data() + item.first_row * width, item.num_rows, item.weights.gate, gate.data());
    metro::linear(x.data() + item.first_row * width, item.num_rows, item.weights.up, up.data());
    for (std::int64_t i = 0; i < gate.size(); ++i) {
      gate[i] = metro::portable::silu(gate[i]) * up[i];
    }
    metro::linear(gate.data(), item.num_rows, item.weights.down, expected.data());
    REQUIRE(same_bits(part(y, item.first_row * width, item.num_rows * width), expected.span()));
  }
}

TEST_CASE("experts that scale by their number plus one show which rows they served") {
  const std::int64_t width = 34;
  std::vector<Expert> experts;
  std::vector<ExpertWork> work;
  for (std::int64_t e = 0; e < 4; ++e) {
    experts.push_back(metro::test::scaling_expert(StoredType::bf16, width, e + 1));
    work.push_back({experts.back().packed(), 2 * e, 2});
  }
  Array<float> x("x", 8 * width);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    x[i] = i % width == 0 ? 1.0F : static_cast<float>(i);
  }
  Array<float> hidden("hidden", 8 * width);
  Array<float> y("y", 8 * width);

  metro::expert_ffn(work, x.data(), hidden.data(), y.data());

  for (std::int64_t i = 0; i < x.size(); ++i) {
    CHECK(y[i] == static_cast<float>(i / width / 2 + 1) * x[i]);
  }
}

TEST_CASE("an expert FFN agrees with double precision") {
  Numbers numbers(4);
  const std::int64_t width = 64;
  const std::int64_t hidden_width = 48;
  const Expert expert = random_expert(StoredType::f32, width, hidden_width, numbers);
  const Array<float> x = numbers.array(width);
  Array<float> hidden("hidden", hidden_width);
  Array<float> y("y", width);

  metro::expert_ffn(std::vector<ExpertWork>{{expert.packed(), 0, 1}}, x.data(), hidden.data(), y.data());

  std::vector<double> exact_hidden;
  for (std::int64_t f = 0; f < hidden_width; ++f) {
    double gate = 0;
    double up = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      gate += static_cast<double>(x[k]) * static_cast<double>(expert.gate.at(f, k));
      up += static_cast<double>(x[k]) * static_cast<double>(expert.up.at(f, k));
    }
    exact_hidden.push_back(gate / (1.0 + std::exp(-gate)) * up);
  }
  for (std::int64_t n = 0; n < width; ++n) {
    double exact = 0;
    for (std::int64_t f = 0; f < hidden_width; ++f) {
      exact += exact_hidden[static_cast<std::size_t>(f)] * static_cast<double>(expert.down.at(n, f));
    }
    // Sums of some 64 terms of order 10: absolute errors of a few 2^-24 of that in each of the three layers.
    CHECK(static_cast<double>(y[n]) == Approx(exact).margin(1e-3));
  }
}

TEST_CASE("an empty work list and experts without rows do nothing") {
  Numbers numbers(5);
  const Expert expert = random_expert(StoredType::bf16, 8, 8, numbers);

  metro::expert_ffn({}, nullptr, nullptr, nullptr);
  metro::expert_ffn(std::vector<ExpertWork>{{expert.packed(), 0, 0}}, nullptr, nullptr, nullptr);
  metro::gate_top_k(nullptr, 0, 8, 2, {}, nullptr, nullptr, nullptr);
  metro::combine(nullptr, nullptr, nullptr, 0, 2, 8, nullptr);
}

TEST_CASE("experts that do not fit together, or more choices than experts, are bugs") {
  Numbers numbers(6);
  const Expert small = random_expert(StoredType::bf16, 8, 8, numbers);
  const Expert wide = random_expert(StoredType::bf16, 8, 16, numbers);
  const Expert small_int8 = random_expert(StoredType::int8, 8, 8, numbers);
  const metro::ExpertWeights mixed = {small.gate.packed, wide.up.packed, small.down.packed};
  const metro::ExpertWeights mixed_types = {small.gate.packed, small_int8.up.packed, small.down.packed};

  CHECK_THROWS_AS(metro::expert_ffn(std::vector<ExpertWork>{{small.packed(), 0, 0}, {wide.packed(), 0, 0}}, nullptr,
                                    nullptr, nullptr),
                  metro::Bug);
  CHECK_THROWS_AS(metro::expert_ffn(std::vector<ExpertWork>{{mixed, 0, 0}}, nullptr, nullptr, nullptr), metro::Bug);
  CHECK_THROWS_AS(metro::expert_ffn(std::vector<ExpertWork>{{mixed_types, 0, 0}}, nullptr, nullptr, nullptr),
                  metro::Bug);
  CHECK_THROWS_AS(metro::gate_top_k(nullptr, 0, 4, 5, {}, nullptr, nullptr, nullptr), metro::Bug);
}

TEST_CASE("combine sums weighted results by fused multiply-adds in order of choice") {
  const std::int64_t width = 37;
  const std::int64_t top_k = 3;
  Numbers numbers(7);
  const Array<float> results = numbers.array(6 * width);
  const Array<float> weights = numbers.array(2 * top_k);
  const Array<std::int64_t> offsets = array_of<std::int64_t>({5 * 37, 0, 3 * 37 - 2, 80, 80, 4 * 37});
  Array<float> out = numbers.array(2 * width);

  metro::combine(results.data(), offsets.data(), weights.data(), 2, top_k, width, out.data());

  std::vector<float> expected;
  for (std::int64_t r = 0; r < 2; ++r) {
    for (std::int64_t i = 0; i < width; ++i) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < top_k; ++k) {
        sum = std::fma(weights[r * top_k + k], results[offsets[r * top_k + k] + i], sum);
      }
      expected.push_back(sum);
    }
  }
  CHECK(same_bits(out.span(), expected));
}
