#include "kernels/listed_experts.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "decode_step_data.hpp"
#include "mirror_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

using metro::at;
using metro::ExpertWeights;
using metro::ExpertWeightTable;
using metro::ExpertWork;
using metro::Mirror;
using metro::StoredType;
using metro::test::mirror_of;
using metro::test::Numbers;
using metro::test::random_weights;
using metro::test::same_bits;
using metro::test::TestExpert;
using metro::test::values_of;

namespace {

TestExpert random_expert(StoredType gate_up, StoredType down, std::int64_t width, std::int64_t hidden_width,
                         Numbers& numbers, bool has_bias = false) {
  return {random_weights(gate_up, hidden_width, width, numbers, has_bias),
          random_weights(gate_up, hidden_width, width, numbers, has_bias),
          random_weights(down, width, hidden_width, numbers, has_bias)};
}

}  // namespace

TEST_CASE("experts by lists of the device give the bits of lists of the host, for every stored type and row count") {
  const StoredType gate_up =
      GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  const StoredType down =
      GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  const bool has_bias = GENERATE(false, true);
  const std::vector<std::int32_t> rows_of_slot = GENERATE(
      std::vector<std::int32_t>{3}, std::vector<std::int32_t>{0, 1, 8, 0, 9}, std::vector<std::int32_t>{150, 2});
  const std::int64_t width = metro::test::inputs_for(gate_up, 301);
  const std::int64_t hidden_width = metro::test::inputs_for(down, 270);  // more than one tile of every stored type
  const std::int64_t top_k = 3;
  const std::int64_t stride = width + 5;
  Numbers numbers(1);
  // The activation goes with the biases, so that there are not more combinations.
  const metro::Activation activation =
      has_bias ? metro::Activation{metro::ActivationKind::clamped_swiglu, 2.0F} : metro::Activation{};
  std::vector<TestExpert> experts;
  std::vector<ExpertWeights> of_slots;
  std::vector<ExpertWork> host_work;
  std::vector<std::int32_t> work_begin = {0};
  for (const std::int32_t rows : rows_of_slot) {
    experts.push_back(random_expert(gate_up, down, width, hidden_width, numbers, has_bias));
    of_slots.push_back(experts.back().packed());
    of_slots.back().activation = activation;
    host_work.push_back({of_slots.back(), work_begin.back(), rows});
    work_begin.push_back(work_begin.back() + rows);
  }
  const std::int64_t num_work = work_begin.back();
  const std::int64_t num_rows = num_work;
  std::vector<float> rows(at(num_rows * stride));
  std::generate(rows.begin(), rows.end(), [&] { return numbers.next(); });
  std::vector<std::int32_t> work;
  std::vector<float> inputs;
  for (std::int64_t i = 0; i < num_work; ++i) {
    work.push_back(static_cast<std::int32_t>((i * 7 + 2) % (num_rows * top_k)));
    const auto row = rows.begin() + work.back() / top_k * stride;
    inputs.insert(inputs.end(), row, row + width);
  }
  const Mirror<float> hidden("hidden", num_work * hidden_width);
  const Mirror<float> expected("expected", num_work * width);
  const Mirror<float> y = mirror_of(std::vector<float>(at((num_work + 1) * width), 7.0F));
  const Mirror<float> x = mirror_of(inputs);
  metro::expert_ffn(host_work, x.kernels(), hidden.kernels(), expected.kernels());
  const ExpertWeightTable table(of_slots);
  const Mirror<std::int32_t> begin_list = mirror_of(work_begin);
  const Mirror<std::int32_t> work_list = mirror_of(work);
  const Mirror<float> all_rows = mirror_of(rows);

  metro::listed_expert_ffn(table,
                           {begin_list.kernels(), work_list.kernels(), num_work + 9, all_rows.kernels(), stride, top_k},
                           hidden.kernels(), y.kernels());

  std::vector<float> whole = values_of(expected);
  whole.resize(whole.size() + at(width), 7.0F);  // what is beyond the work stays
  CHECK(same_bits(values_of(y), whole));
}

TEST_CASE("a table of slots that do not fit together or are all empty is a bug") {
  Numbers numbers(2);
  const TestExpert small = random_expert(StoredType::bf16, StoredType::bf16, 8, 8, numbers);
  const TestExpert wide = random_expert(StoredType::bf16, StoredType::bf16, 8, 16, numbers);
  const std::vector<ExpertWeights> mixed = {small.packed(), wide.packed()};
  const std::vector<ExpertWeights> torn = {{small.gate.packed, wide.up.packed, small.down.packed}};
  const std::vector<ExpertWeights> empty(3);
  std::vector<ExpertWeights> two_activations = {small.packed(), small.packed()};
  two_activations.back().activation.kind = metro::ActivationKind::clamped_swiglu;

  CHECK_THROWS_AS(ExpertWeightTable(mixed), metro::Bug);
  CHECK_THROWS_AS(ExpertWeightTable(torn), metro::Bug);
  CHECK_THROWS_AS(ExpertWeightTable(empty), metro::Bug);
  CHECK_THROWS_AS(ExpertWeightTable(two_activations), metro::Bug);
}

TEST_CASE("empty slots of a table are passed over") {
  Numbers numbers(3);
  const TestExpert expert = random_expert(StoredType::bf16, StoredType::bf16, 8, 8, numbers);

  const ExpertWeightTable table(std::vector<ExpertWeights>{{}, expert.packed(), {}});

  CHECK(table.num_slots() == 3);
  CHECK(table.shape().gate.data == expert.gate.packed.data);
}
