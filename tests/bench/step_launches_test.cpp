// The table of kernels of a step against what a step of a decoder launches, layer by layer.
#include "bench/step_launches.hpp"

#include "bench/random_weights.hpp"
#include "decoder/decoder.hpp"
#include "kernels/queue.hpp"
#include "placement/placement.hpp"
#include "transport/device_exchange.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <numeric>

using metro::ModelShape;
using metro::RoutedBy;
using metro::StepPart;

namespace {

// Launches of a decode step of num_rows sequences of 3 tokens.
std::int64_t launched(const ModelShape& shape, RoutedBy routed_by, std::int64_t num_layers, std::int64_t num_rows) {
  const metro::ModelSpec spec = metro::model_spec_of(shape, num_layers, shape.vocab);
  metro::RandomWeights weights(spec, metro::StoredType::bf16);
  const auto transport = metro::make_self_transport();
  const auto exchange = metro::make_device_exchange(*transport);
  metro::DecoderLimits limits;
  limits.max_rows = 4;
  limits.max_decode_rows = limits.max_sampled_rows = num_rows;
  limits.max_context = limits.block_tokens = 8;
  limits.kv_blocks = num_rows;
  limits.exchange_bytes = 1 << 20;
  limits.listed.most_rows = routed_by == RoutedBy::device ? 4 : 0;
  metro::Decoder decoder(weights, metro::ReplicatedTensors(weights, 8, metro::Sharing::per_rank, *transport),
                         metro::place_trivial(num_layers, shape.num_experts, 1, shape.num_experts), {}, *exchange,
                         limits);
  metro::RowBatch batch;
  batch.decode = true;
  batch.rows_of_rank = {num_rows};
  batch.max_blocks = 1;
  for (std::int32_t row = 0; row < num_rows; ++row) {
    batch.token_ids.push_back(row);
    batch.positions.push_back(2);
    batch.sequences.push_back(row);
    batch.sampled_rows.push_back(row);
    batch.block_tables.push_back(row);
  }
  const std::int64_t before = metro::num_launches();
  decoder.forward(batch, nullptr);
  return metro::num_launches() - before;
}

ModelShape two_layers(ModelShape shape) {
  shape.num_layers = 2;
  return shape;
}

}  // namespace

TEST_CASE("a decode step launches the kernels of the table") {
  const ModelShape& tiny = metro::model_shape("tiny", "test");
  const RoutedBy routed_by = GENERATE(RoutedBy::host, RoutedBy::device);
  const auto launches = metro::step_launches(tiny, routed_by, tiny.top_k);
  const std::int64_t of_ends = metro::num_launches_of(launches, StepPart::ends);
  const std::int64_t of_layer =
      metro::num_launches_of(launches, StepPart::attention) + metro::num_launches_of(launches, StepPart::experts);

  CHECK(launched(tiny, routed_by, 1, 1) == of_ends + of_layer);
  CHECK(launched(tiny, routed_by, 3, 1) == of_ends + 3 * of_layer);
  CHECK(launched(tiny, routed_by, 2, 3) == of_ends + 2 * of_layer);
  CHECK(launched(tiny, routed_by, tiny.num_layers, 2) == metro::num_launches_of_step(tiny, launches));
}

TEST_CASE("a decode step with latent attention and a shared expert launches the kernels of the table") {
  ModelShape narrow = metro::model_shape("deepseek-v3", "test");
  narrow.hidden = 64;
  narrow.expert_width = narrow.shared_width = 32;
  narrow.num_experts = 16;
  narrow.top_k = 2;
  narrow.vocab = 96;
  narrow.num_heads = narrow.num_kv_heads = 3;
  narrow.head_dim = 20;
  narrow.latent = metro::LatentSpec{
      .query_rank = 24, .kv_rank = 40, .nope_dim = 12, .rope_dim = 8, .value_dim = 16, .norm_eps = 1e-6F};
  const RoutedBy routed_by = GENERATE(RoutedBy::host, RoutedBy::device);
  const auto launches = metro::step_launches(narrow, routed_by, narrow.top_k);
  const std::int64_t of_layer =
      metro::num_launches_of(launches, StepPart::attention) + metro::num_launches_of(launches, StepPart::experts);

  CHECK(launched(narrow, routed_by, 2, 1) == metro::num_launches_of(launches, StepPart::ends) + 2 * of_layer);
}

TEST_CASE("experts beyond 64 need another pair of kernels if the host lists them, and none if the device does") {
  const ModelShape& qwen = metro::model_shape("qwen3-30b-a3b", "test");
  const auto of_experts = [&](RoutedBy routed_by, std::int64_t num_activated) {
    return metro::num_launches_of(metro::step_launches(qwen, routed_by, num_activated), StepPart::experts);
  };

  CHECK(of_experts(RoutedBy::host, 65) == of_experts(RoutedBy::host, 64) + 2);
  CHECK(of_experts(RoutedBy::host, 64) == of_experts(RoutedBy::host, 1));
  CHECK(of_experts(RoutedBy::device, 128) == of_experts(RoutedBy::device, 1));
}

TEST_CASE("a shared expert is three kernels more, and a gated one four") {
  const RoutedBy routed_by = GENERATE(RoutedBy::host, RoutedBy::device);
  ModelShape plain = metro::model_shape("tiny", "test");
  plain.family = "qwen2_moe";
  plain.num_inner_norms = 0;
  ModelShape with_shared = plain;
  with_shared.shared_width = 48;
  ModelShape with_gated = with_shared;
  with_gated.shared_is_gated = true;

  const auto of_experts = [&](const ModelShape& shape) {
    return metro::num_launches_of(metro::step_launches(shape, routed_by, shape.top_k), StepPart::experts);
  };

  CHECK(of_experts(with_shared) == of_experts(plain) + 3);
  CHECK(of_experts(with_gated) == of_experts(plain) + 4);
  for (const ModelShape& shape : {with_shared, with_gated}) {
    CHECK(launched(shape, routed_by, 2, 3) ==
          metro::num_launches_of_step(two_layers(shape), metro::step_launches(shape, routed_by, shape.top_k)));
  }
}

TEST_CASE("norms over all heads are as many kernels as norms of each, and none are none") {
  const RoutedBy routed_by = GENERATE(RoutedBy::host, RoutedBy::device);
  ModelShape full_width = metro::model_shape("tiny", "test");
  full_width.family = "olmoe";
  ModelShape without = metro::model_shape("tiny", "test");
  without.family = "mixtral";
  without.num_inner_norms = 0;

  for (const ModelShape& shape : {full_width, without}) {
    CHECK(launched(shape, routed_by, 2, 1) ==
          metro::num_launches_of_step(two_layers(shape), metro::step_launches(shape, routed_by, shape.top_k)));
  }
}
