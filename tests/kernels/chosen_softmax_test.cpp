// The gate that takes a softmax over the experts it has chosen.
#include "kernels/gate.hpp"

#include "kernel_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using metro::GateForm;
using metro::GateKind;
using metro::test::Array;
using metro::test::array_of;
using metro::test::Numbers;
using metro::test::same_bits;

namespace {

struct Choice {
  Array<std::int32_t> ids;
  Array<float> weights;
};

Choice choose(const std::vector<float>& logits, std::int64_t num_rows, std::int64_t top_k, float scale = 1.0F) {
  const Array<float> values = array_of(logits);
  Choice choice{Array<std::int32_t>("ids", num_rows * top_k), Array<float>("weights", num_rows * top_k)};
  metro::gate_top_k(values.data(), num_rows, values.size() / num_rows, top_k,
                    {.kind = GateKind::chosen_softmax, .scale = scale}, nullptr, choice.ids.data(),
                    choice.weights.data());
  return choice;
}

std::vector<std::int32_t> ids_of(const Choice& choice) {
  return {choice.ids.span().begin(), choice.ids.span().end()};
}

}  // namespace

TEST_CASE("a softmax over the chosen is that of each row's top logits alone") {
  Numbers numbers(8);
  std::vector<float> logits(3 * 33);
  for (float& logit : logits) {
    logit = numbers.next(6.0F);
  }

  const Choice choice = choose(logits, 3, 4);

  for (std::size_t r = 0; r < 3; ++r) {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(33 * r);
    std::vector<float> sorted(first, first + 33);
    std::sort(sorted.rbegin(), sorted.rend());
    double sum = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      sum += std::exp(static_cast<double>(sorted[k]));
    }
    for (std::size_t k = 0; k < 4; ++k) {
      const auto i = static_cast<std::int64_t>(4 * r + k);
      CHECK(first[choice.ids[i]] == sorted[k]);
      // Rounding of the subtraction (12 * 2^-24), two exponentials, three additions, one division.
      const double exact = std::exp(static_cast<double>(sorted[k])) / sum;
      CHECK(std::abs(static_cast<double>(choice.weights[i]) - exact) <= 24 * 0x1p-24 * exact);
    }
  }
}

TEST_CASE("a softmax over the chosen breaks ties by the lower expert, and does not see the others") {
  const Choice few = choose({1.0F, 3.0F, 3.0F, 1.0F, 3.0F, -200.0F}, 1, 2);
  const Choice more = choose({1.0F, 3.0F, 3.0F, 2.5F, 2.0F, 2.9F}, 1, 2);
  const Choice scaled = choose({3.0F, 3.0F}, 1, 2, 2.5F);

  CHECK(ids_of(few) == std::vector<std::int32_t>{1, 2});
  CHECK(same_bits(few.weights.span(), std::vector<float>{0.5F, 0.5F}));
  CHECK(same_bits(more.weights.span(), few.weights.span()));
  CHECK(same_bits(scaled.weights.span(), std::vector<float>{1.25F, 1.25F}));
}

TEST_CASE("a NaN among the chosen makes their weights NaN, and the experts stay valid and distinct") {
  const float nan = std::numeric_limits<float>::quiet_NaN();

  const Choice one = choose({nan, 1.0F, 2.0F}, 1, 3);
  const Choice all = choose({nan, nan, nan}, 1, 2);

  CHECK(ids_of(one) == std::vector<std::int32_t>{2, 1, 0});
  CHECK(ids_of(all) == std::vector<std::int32_t>{0, 1});
  CHECK(std::isnan(one.weights[0]));
  CHECK(std::isnan(all.weights[1]));
}
