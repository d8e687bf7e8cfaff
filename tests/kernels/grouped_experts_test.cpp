// Experts by the vendor's grouped product against the portable ones. Where there is a device, or on the emulated one.
#include "kernels/grouped_experts.hpp"

#include "base/error.hpp"
#include "expert_data.hpp"
#include "kernel_data.hpp"
#include "kernels/queue.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

using metro::ExpertWork;
using metro::GroupedExperts;
using metro::StoredType;
using metro::test::Array;
using metro::test::Expert;
using metro::test::Numbers;
using metro::test::random_expert;

namespace {

// A number and a bound on the distance of another computation of it.
struct Bounded {
  double value, distance;
};

// Half the distance of two bf16 over the smaller one.
constexpr double unit = 0x1p-8;
// For sums of up to some hundred terms in fp32, relative to the sum of their absolute values.
constexpr double unit_of_sums = 1e-5;

// sum of weights[i] * x[i], and how far a sum can be off in which x[i] is and is then rounded to bf16.
template <class WeightOf>
Bounded dot(const std::vector<Bounded>& x, const WeightOf& weight_of) {
  double value = 0;
  double distance = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const double weight = static_cast<double>(weight_of(static_cast<std::int64_t>(k)));
    value += weight * x[k].value;
    distance += std::abs(weight) * (x[k].distance + unit_of_sums * (std::abs(x[k].value) + x[k].distance));
  }
  return {value, distance + unit * (std::abs(value) + distance)};
}

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

// One row through an expert: exact values, and how far off those of the grouped product may be. The slope of silu is
// at most 1.1. Portable experts are off too, by what unit_of_sums is for.
std::vector<Bounded> bounded_row(const Expert& expert, const std::vector<float>& x) {
  std::vector<Bounded> in;
  for (const float value : x) {
    in.push_back({static_cast<double>(value), unit * std::abs(static_cast<double>(value))});
  }
  std::vector<Bounded> hidden;
  for (std::int64_t f = 0; f < expert.gate.out; ++f) {
    const Bounded gate = dot(in, [&](std::int64_t k) { return expert.gate.at(f, k); });
    const Bounded up = dot(in, [&](std::int64_t k) { return expert.up.at(f, k); });
    const double value = silu(gate.value) * up.value;
    const double distance =
        1.1 * gate.distance * (std::abs(up.value) + up.distance) + std::abs(silu(gate.value)) * up.distance;
    hidden.push_back({value, distance + unit * (std::abs(value) + distance)});
  }
  std::vector<Bounded> out;
  for (std::int64_t n = 0; n < expert.down.out; ++n) {
    out.push_back(dot(hidden, [&](std::int64_t f) { return expert.down.at(n, f); }));
  }
  return out;
}

// Experts and their rows, one behind the other.
struct Work {
  std::vector<Expert> experts;
  std::vector<ExpertWork> items;
  std::int64_t num_rows = 0;

  Work(const std::vector<std::int64_t>& row_counts, std::int64_t width, std::int64_t hidden_width, Numbers& numbers) {
    for (const std::int64_t rows : row_counts) {
      experts.push_back(random_expert(StoredType::bf16, width, hidden_width, numbers));
      items.push_back({experts.back().packed(), num_rows, rows});
      num_rows += rows;
    }
  }
};

Array<float> grouped(GroupedExperts& experts, const std::vector<ExpertWork>& work, const Array<float>& x,
                     std::int64_t hidden_width) {
  Array<float> copy("copy of x", std::vector<float>(x.span().begin(), x.span().end()));
  const std::int64_t num_rows = work.back().first_row + work.back().num_rows;
  Array<float> hidden("hidden", num_rows * hidden_width);
  Array<float> y("y", x.size());
  experts.run(work, copy.data(), hidden.data(), y.data());
  metro::wait_for_kernels();
  return y;
}

}  // namespace

TEST_CASE("grouped experts are as far from portable ones as rounding to bf16 allows") {
  // Whole panels and less than one; no rows, one, many.
  const auto [width, hidden_width] = GENERATE(table<std::int64_t, std::int64_t>({{64, 32}, {72, 40}, {8, 16}}));
  const std::vector<std::int64_t> row_counts =
      GENERATE(std::vector<std::int64_t>{1}, std::vector<std::int64_t>{0, 70, 1, 0, 3});
  Numbers numbers(1);
  const Work work(row_counts, width, hidden_width, numbers);
  const Array<float> x = numbers.array(work.num_rows * width);
  Array<float> hidden("hidden", work.num_rows * hidden_width);
  Array<float> portable("y", work.num_rows * width);
  GroupedExperts experts(width, hidden_width, std::ssize(row_counts));

  metro::expert_ffn(work.items, x.data(), hidden.data(), portable.data());
  const Array<float> y = grouped(experts, work.items, x, hidden_width);

  double used = 0;  // the largest share of a bound
  for (std::size_t e = 0; e < work.items.size(); ++e) {
    const std::int64_t first = work.items[e].first_row;
    for (std::int64_t row = first; row < first + work.items[e].num_rows; ++row) {
      const std::span<const float> in = metro::test::part(x, row * width, width);
      const std::vector<Bounded> bounds = bounded_row(work.experts[e], {in.begin(), in.end()});
      for (std::int64_t n = 0; n < width; ++n) {
        const double distance =
            std::abs(static_cast<double>(y[row * width + n]) - static_cast<double>(portable[row * width + n]));
        const double bound = bounds[static_cast<std::size_t>(n)].distance;
        CAPTURE(e, row, n, distance, bound);
        REQUIRE(distance <= bound);
        used = std::max(used, distance / bound);
      }
    }
  }
  CHECK(used > 0.01);  // they were rounded
}

TEST_CASE("grouped experts that scale by their number plus one show which rows they served") {
  const std::int64_t width = 40;
  std::vector<Expert> experts;
  std::vector<ExpertWork> work;
  for (std::int64_t e = 0; e < 4; ++e) {
    experts.push_back(metro::test::scaling_expert(StoredType::bf16, width, e + 1));
    work.push_back({experts.back().packed(), 2 * e, 2});
  }
  Array<float> x("x", 8 * width);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    x[i] = i % width == 0 ? 1.0F : static_cast<float>(i % 50);
  }
  GroupedExperts grouped_experts(width, width, 4);

  const Array<float> all = grouped(grouped_experts, work, x, width);
  const Array<float> last_two = grouped(grouped_experts, {work[2], work[3]}, x, width);

  for (std::int64_t i = 0; i < x.size(); ++i) {
    const float expected = static_cast<float>(i / width / 2 + 1) * x[i];
    REQUIRE(all[i] == expected);
    REQUIRE((i / width < 4 || last_two[i] == expected));
  }
}

TEST_CASE("grouped experts without work or rows do nothing") {
  Numbers numbers(2);
  const Expert expert = random_expert(StoredType::bf16, 8, 8, numbers);
  GroupedExperts experts(8, 8, 1);
  const std::int64_t launches = metro::num_launches();

  experts.run({}, nullptr, nullptr, nullptr);
  experts.run(std::vector<ExpertWork>{{expert.packed(), 0, 0}}, nullptr, nullptr, nullptr);

  CHECK(metro::num_launches() == launches);
}

namespace {

metro::ExpertWeights shape_of(StoredType type, std::int64_t hidden_size, std::int64_t intermediate_size) {
  const metro::PackedMatrix half{nullptr, type, intermediate_size, hidden_size};
  return {half, half, {nullptr, type, hidden_size, intermediate_size}};
}

}  // namespace

TEST_CASE("a grouped product takes bf16 of widths that keep matrices aligned, and says what else it does not take") {
  CHECK(GroupedExperts::why_not(shape_of(StoredType::bf16, 2048, 768)).empty());
  CHECK(GroupedExperts::why_not(shape_of(StoredType::int8, 2048, 768)) ==
        "the product of cuBLAS takes weights in bf16, these are int8");
  CHECK(GroupedExperts::why_not(shape_of(StoredType::f32, 2048, 768)) ==
        "the product of cuBLAS takes weights in bf16, these are f32");
  CHECK(GroupedExperts::why_not(shape_of(StoredType::bf16, 2044, 768)) ==
        "the product of cuBLAS takes widths that are multiples of 8, one is 2044");
  CHECK(GroupedExperts::why_not(shape_of(StoredType::bf16, 2048, 34)) ==
        "the product of cuBLAS takes widths that are multiples of 8, one is 34");
}

TEST_CASE("a grouped product takes no biases, no other activation and no other type of any matrix") {
  metro::ExpertWeights with_bias = shape_of(StoredType::bf16, 2048, 768);
  with_bias.down.has_bias = true;
  metro::ExpertWeights clamped = shape_of(StoredType::bf16, 2048, 768);
  clamped.activation.kind = metro::ActivationKind::clamped_swiglu;
  metro::ExpertWeights mixed = shape_of(StoredType::bf16, 2048, 768);
  mixed.down.type = StoredType::f32;

  CHECK(GroupedExperts::why_not(with_bias) == "the product of cuBLAS adds no biases, these experts have some");
  CHECK(GroupedExperts::why_not(clamped) ==
        "with the product of cuBLAS the activation is silu, these experts have another");
  CHECK(GroupedExperts::why_not(mixed) == "the product of cuBLAS takes weights in bf16, these are f32");
}

TEST_CASE("grouped experts of another kind, or more than announced, are bugs") {
  Numbers numbers(3);
  const Expert small = random_expert(StoredType::bf16, 8, 8, numbers);
  const Expert wide = random_expert(StoredType::bf16, 8, 16, numbers);
  const Expert int8 = random_expert(StoredType::int8, 8, 8, numbers);
  const Array<float> x = numbers.array(3 * 8);
  GroupedExperts experts(8, 8, 1);

  CHECK_THROWS_AS(grouped(experts, {{wide.packed(), 0, 1}}, x, 16), metro::Bug);
  CHECK_THROWS_AS(grouped(experts, {{int8.packed(), 0, 1}}, x, 8), metro::Bug);
  CHECK_THROWS_AS(grouped(experts, {{small.packed(), 0, 1}, {small.packed(), 1, 1}, {small.packed(), 2, 1}}, x, 8),
                  metro::Bug);
}

TEST_CASE("grouped experts hold what was planned for them") {
  const GroupedExperts experts(72, 40, 5);

  CHECK(experts.num_bytes() == GroupedExperts::planned_bytes(72, 40, 5));
  // 2 x 2 panels of gate and up, 3 of down, three pointers each, and the workspace.
  CHECK(experts.num_bytes() == 5 * 7 * 3 * 8 + (32 << 20));
}
