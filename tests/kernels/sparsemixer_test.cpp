// The gate of Phi-3.5-MoE against its definition in double precision, and at its edges.
#include "kernels/gate.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernel_data.hpp"
#include "kernels/portable/math.hpp"
#include "mirror_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using metro::at;
using metro::Mirror;
using metro::test::mirror_of;
using metro::test::Numbers;
using metro::test::same_bits;
using metro::test::values_of;

namespace {

struct Choice {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Choice choose(const std::vector<float>& logits, std::int64_t num_rows, float jitter) {
  const Mirror<float> values = mirror_of(logits);
  const Mirror<std::int32_t> ids("ids", 2 * num_rows);
  const Mirror<float> weights("weights", 2 * num_rows);
  metro::gate_top_k(values.kernels(), num_rows, std::ssize(logits) / num_rows, 2,
                    {.kind = metro::GateKind::sparsemixer, .jitter = jitter}, nullptr, ids.kernels(),
                    weights.kernels());
  return {values_of(ids), values_of(weights)};
}

struct Pick {
  std::size_t id;
  double weight;
};

// The definition: the first of the largest logits that are not masked, and its share of a softmax over those that are
// neither masked nor too low.
Pick pick(const std::vector<float>& logits, std::ptrdiff_t masked, double jitter) {
  std::ptrdiff_t best = -1;
  for (std::ptrdiff_t i = 0; i < std::ssize(logits); ++i) {
    if (i != masked && (best < 0 || logits[static_cast<std::size_t>(i)] > logits[static_cast<std::size_t>(best)])) {
      best = i;
    }
  }
  const double top = static_cast<double>(logits[static_cast<std::size_t>(best)]);
  double sum = 0;
  for (std::ptrdiff_t i = 0; i < std::ssize(logits); ++i) {
    const double logit = static_cast<double>(logits[static_cast<std::size_t>(i)]);
    if (i != masked && !((top - logit) / std::max(std::abs(logit), top) > 2 * jitter)) {
      sum += std::exp(logit - top);
    }
  }
  return {static_cast<std::size_t>(best), 1.0 / sum};
}

}  // namespace

TEST_CASE("sparsemixer picks twice, each time with a softmax over the experts that are close to the best") {
  const float shift = GENERATE(3.0F, 0.0F, -3.0F);  // all logits positive, of both signs, all negative
  const float jitter = GENERATE(0.01F, 0.25F);
  const std::int64_t num_experts = GENERATE(2, 9, 16, 40);
  Numbers numbers(1);
  std::vector<float> logits(at(50 * num_experts));
  for (float& logit : logits) {
    logit = shift + numbers.next(2.0F);
  }

  const Choice choice = choose(logits, 50, jitter);

  for (std::ptrdiff_t row = 0; row < 50; ++row) {
    const std::vector<float> of_row(logits.begin() + row * num_experts, logits.begin() + (row + 1) * num_experts);
    const Pick first = pick(of_row, -1, static_cast<double>(jitter));
    const Pick second = pick(of_row, static_cast<std::ptrdiff_t>(first.id), static_cast<double>(jitter));
    CHECK(choice.ids[at(2 * row)] == static_cast<std::int32_t>(first.id));
    CHECK(choice.ids[at(2 * row + 1)] == static_cast<std::int32_t>(second.id));
    // Rounding of the differences (5 * 2^-24), exponentials, sums of up to 7 terms, one division.
    CHECK(std::abs(static_cast<double>(choice.weights[at(2 * row)]) - first.weight) <= 24 * 0x1p-24 * first.weight);
    CHECK(std::abs(static_cast<double>(choice.weights[at(2 * row + 1)]) - second.weight) <=
          24 * 0x1p-24 * second.weight);
  }
}

TEST_CASE("sparsemixer drops an expert only if it lies more than twice the jitter below the best") {
  // (4 - 3) / 4 = 0.25 and (4 - 2) / 4 = 0.5, both exact.
  const std::vector<float> logits = {3.0F, 4.0F, 2.0F};

  const Choice keeps_all = choose(logits, 1, 0.25F);
  const Choice keeps_two = choose(logits, 1, 0.125F);
  const Choice keeps_best = choose(logits, 1, 0.1F);

  const float e1 = metro::portable::exp_of(-1.0F);
  const float e2 = metro::portable::exp_of(-2.0F);
  CHECK(keeps_all.ids == std::vector<std::int32_t>{1, 0});
  CHECK(same_bits(keeps_all.weights, std::vector<float>{1.0F / ((e1 + e2) + 1.0F), 1.0F / (1.0F + e1)}));
  CHECK(same_bits(keeps_two.weights, std::vector<float>{1.0F / (e1 + 1.0F), 1.0F}));  // (3 - 2) / 3 > 0.25
  CHECK(same_bits(keeps_best.weights, std::vector<float>{1.0F, 1.0F}));
}

TEST_CASE("sparsemixer breaks ties by the lower expert, and keeps zeros beside zeros") {
  const Choice zeros = choose({0.0F, -0.0F, 0.0F, 0.0F}, 1, 0.01F);
  const Choice tied = choose({-1.0F, 2.0F, 5.0F, 5.0F, 2.0F}, 1, 0.01F);

  CHECK(zeros.ids == std::vector<std::int32_t>{0, 1});
  CHECK(same_bits(zeros.weights, std::vector<float>{0.25F, 1.0F / 3.0F}));
  CHECK(tied.ids == std::vector<std::int32_t>{2, 3});
  CHECK(same_bits(tied.weights, std::vector<float>{0.5F, 1.0F}));
}

TEST_CASE("sparsemixer gives valid and distinct experts and NaN for weights of rows that hold NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();

  const Choice one = choose({nan, 1.0F, 2.0F}, 1, 0.01F);
  const Choice two = choose({nan, 1.0F}, 1, 0.01F);
  const Choice all = choose({nan, nan, nan}, 1, 0.01F);

  CHECK(one.ids == std::vector<std::int32_t>{2, 1});
  CHECK(two.ids == std::vector<std::int32_t>{1, 0});
  CHECK(all.ids == std::vector<std::int32_t>{0, 1});
  for (const Choice* choice : {&one, &two, &all}) {
    CHECK((std::isnan(choice->weights[0]) && std::isnan(choice->weights[1])));
  }
}

TEST_CASE("sparsemixer treats every row by itself") {
  Numbers numbers(2);
  std::vector<float> logits(7 * 16);
  for (float& logit : logits) {
    logit = numbers.next(3.0F);
  }

  const Choice together = choose(logits, 7, 0.2F);

  for (std::ptrdiff_t row = 0; row < 7; ++row) {
    const Choice alone = choose({logits.begin() + row * 16, logits.begin() + (row + 1) * 16}, 1, 0.2F);
    CHECK(alone.ids == std::vector<std::int32_t>(together.ids.begin() + 2 * row, together.ids.begin() + 2 * row + 2));
    CHECK(same_bits(alone.weights, {together.weights.data() + 2 * row, 2}));
  }
}

TEST_CASE("sparsemixer of another number of picks than two is a bug of the caller") {
  const metro::GateForm form{.kind = metro::GateKind::sparsemixer, .jitter = 0.01F};

  CHECK_THROWS_AS(metro::gate_top_k(nullptr, 0, 8, 3, form, nullptr, nullptr, nullptr), metro::Bug);
}
