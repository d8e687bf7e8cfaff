// Gates that choose among groups of experts, and by sigmoids with a correction, against their definition in double.
#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernel_data.hpp"
#include "kernels/gate.hpp"
#include "mirror_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

using metro::at;
using metro::GateForm;
using metro::GateKind;
using metro::test::mirror_of;
using metro::test::Numbers;
using metro::test::values_of;

namespace {

struct Choice {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Choice choose(const std::vector<float>& logits, std::int64_t num_rows, std::int64_t top_k, const GateForm& form,
              const std::vector<float>& correction = {}) {
  const auto there = mirror_of(logits);
  const auto corrections = mirror_of(correction);
  const auto ids = mirror_of(std::vector<std::int32_t>(at(num_rows * top_k), -1));
  const auto weights = mirror_of(std::vector<float>(at(num_rows * top_k), -1.0F));
  metro::gate_top_k(there.kernels(), num_rows, std::ssize(logits) / num_rows, top_k, form,
                    correction.empty() ? nullptr : corrections.kernels(), ids.kernels(), weights.kernels());
  return {values_of(ids), values_of(weights)};
}

std::vector<std::int64_t> best_first(const std::vector<double>& values) {
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return values[at(a)] > values[at(b)]; });
  return order;
}

// Which experts may be chosen, by full sorts.
std::vector<bool> allowed(const std::vector<double>& choice, const GateForm& form) {
  const auto size = std::ssize(choice) / form.num_groups;
  std::vector<double> scores;
  for (std::int64_t group = 0; group < form.num_groups; ++group) {
    std::vector<double> of_group(choice.begin() + group * size, choice.begin() + (group + 1) * size);
    std::sort(of_group.begin(), of_group.end(), std::greater<>());
    scores.push_back(std::accumulate(of_group.begin(), of_group.begin() + form.best_of_group, 0.0));
  }
  std::vector<bool> allowed_experts(choice.size(), false);
  const std::vector<std::int64_t> order = best_first(scores);
  for (std::int64_t i = 0; i < form.num_kept_groups; ++i) {
    std::fill_n(allowed_experts.begin() + order[at(i)] * size, size, true);
  }
  return allowed_experts;
}

}  // namespace

TEST_CASE("a sigmoid gate chooses by corrected scores within the best groups and weighs by the scores alone") {
  struct Case {
    std::int64_t num_experts, top_k, num_groups, num_kept, best_of_group;
    bool normalise;
  };
  const auto of = GENERATE(Case{12, 4, 3, 2, 2, true}, Case{20, 5, 5, 3, 2, true}, Case{256, 8, 8, 4, 2, true},
                           Case{384, 8, 1, 1, 2, true}, Case{12, 4, 3, 2, 1, false}, Case{8, 8, 4, 4, 2, true});
  constexpr std::int64_t num_rows = 40;
  Numbers numbers(21);
  std::vector<float> logits(at(num_rows * of.num_experts)), correction(at(of.num_experts));
  std::generate(logits.begin(), logits.end(), [&] { return numbers.next(3.0F); });
  std::generate(correction.begin(), correction.end(), [&] { return numbers.next(0.4F) - 0.3F; });
  const GateForm form{.kind = GateKind::sigmoid,
                      .normalise = of.normalise,
                      .scale = 2.5F,
                      .num_groups = of.num_groups,
                      .num_kept_groups = of.num_kept,
                      .best_of_group = of.best_of_group,
                      .has_correction = true};

  const Choice choice = choose(logits, num_rows, of.top_k, form, correction);

  for (std::int64_t row = 0; row < num_rows; ++row) {
    std::vector<double> scores, corrected;
    for (std::int64_t i = 0; i < of.num_experts; ++i) {
      scores.push_back(1.0 / (1.0 + std::exp(-static_cast<double>(logits[at(row * of.num_experts + i)]))));
      corrected.push_back(scores.back() + static_cast<double>(correction[at(i)]));
    }
    const std::vector<bool> may = allowed(corrected, form);
    std::vector<std::int64_t> chosen;
    for (const std::int64_t expert : best_first(corrected)) {
      if (may[at(expert)] && std::ssize(chosen) < of.top_k) {
        chosen.push_back(expert);
      }
    }
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](std::int64_t a, std::int64_t b) { return scores[at(a)] > scores[at(b)]; });
    double sum = 0.0;
    for (const std::int64_t expert : chosen) {
      sum += scores[at(expert)];
    }
    for (std::int64_t k = 0; k < of.top_k; ++k) {
      REQUIRE(choice.ids[at(row * of.top_k + k)] == chosen[at(k)]);
      const double weight = scores[at(chosen[at(k)])] / (of.normalise ? sum : 1.0) * 2.5;
      REQUIRE(static_cast<double>(choice.weights[at(row * of.top_k + k)]) == Approx(weight).epsilon(1e-6));
    }
  }
}

TEST_CASE("a softmax gate with groups takes those whose best expert is most probable") {
  constexpr std::int64_t num_rows = 40, num_experts = 160, top_k = 6;
  Numbers numbers(22);
  std::vector<float> logits(at(num_rows * num_experts));
  std::generate(logits.begin(), logits.end(), [&] { return numbers.next(3.0F); });
  const GateForm form{.normalise = false, .scale = 16.0F, .num_groups = 8, .num_kept_groups = 3};

  const Choice choice = choose(logits, num_rows, top_k, form);

  for (std::int64_t row = 0; row < num_rows; ++row) {
    std::vector<double> scores;
    for (std::int64_t i = 0; i < num_experts; ++i) {
      scores.push_back(std::exp(static_cast<double>(logits[at(row * num_experts + i)])));
    }
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    const std::vector<bool> may = allowed(scores, form);
    std::int64_t k = 0;
    for (const std::int64_t expert : best_first(scores)) {
      if (may[at(expert)] && k < top_k) {
        REQUIRE(choice.ids[at(row * top_k + k)] == expert);
        REQUIRE(static_cast<double>(choice.weights[at(row * top_k + k)]) ==
                Approx(scores[at(expert)] / sum * 16.0).epsilon(1e-6));
        ++k;
      }
    }
  }
}

TEST_CASE("equal groups and experts are taken in ascending order") {
  const GateForm form{.kind = GateKind::sigmoid, .num_groups = 4, .num_kept_groups = 2, .best_of_group = 2};

  const Choice choice = choose(std::vector<float>(12, 0.5F), 1, 5, form);

  CHECK(choice.ids == std::vector<std::int32_t>{0, 1, 2, 3, 4});
  CHECK(std::set<float>(choice.weights.begin(), choice.weights.end()).size() == 1);
}

TEST_CASE("a negative correction of all experts of a kept group does not let others in") {
  // Group 0 has the best pair, group 1 one good expert; -1 on all: what is masked must lie below.
  const std::vector<float> logits = {2, 1, -5, 3, -9, -9, -9, -9, -9};
  const GateForm form{.kind = GateKind::sigmoid, .num_groups = 3, .num_kept_groups = 1, .best_of_group = 2};

  const Choice choice = choose(logits, 1, 3, form, std::vector<float>(9, -1.0F));

  CHECK(choice.ids == std::vector<std::int32_t>{0, 1, 2});
}

TEST_CASE("with NaN logits a sigmoid gate gives valid distinct experts and NaN weights") {
  const GateForm form{.kind = GateKind::sigmoid, .num_groups = 2, .num_kept_groups = 1, .best_of_group = 2};

  const Choice choice = choose(std::vector<float>(8, std::nanf("")), 1, 4, form, std::vector<float>(8, 0.25F));

  CHECK(std::set<std::int32_t>(choice.ids.begin(), choice.ids.end()).size() == 4);
  for (std::size_t k = 0; k < 4; ++k) {
    CHECK((choice.ids[k] >= 0 && choice.ids[k] < 8));
    CHECK(std::isnan(choice.weights[k]));
  }
}

TEST_CASE("gates whose groups do not fit are bugs") {
  const std::vector<float> logits(12, 0.0F);

  CHECK_THROWS_AS(choose(logits, 1, 2, {.num_groups = 5, .num_kept_groups = 2}), metro::Bug);
  CHECK_THROWS_AS(choose(logits, 1, 4, {.num_groups = 4, .num_kept_groups = 1}), metro::Bug);
  CHECK_THROWS_AS(choose(logits, 1, 2, {.num_groups = 4, .num_kept_groups = 2, .best_of_group = 2}), metro::Bug);
  CHECK_THROWS_AS(choose(logits, 1, 2, {}, std::vector<float>(12, 0.0F)), metro::Bug);
}
