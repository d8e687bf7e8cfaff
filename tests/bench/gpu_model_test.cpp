// The model of bench gpu against sums worked out by hand.
#include "bench/gpu_model.hpp"

#include <catch2/catch.hpp>

using metro::CostFigures;
using metro::GpuStep;
using metro::LayerBytes;
using metro::ModelShape;
using metro::ScalingPoint;

namespace {

const ModelShape& shape(const char* name) {
  return metro::model_shape(name, "test");
}

ScalingPoint point(std::int64_t num_ranks, std::int64_t batch, double lambda) {
  ScalingPoint made_up;
  made_up.num_ranks = num_ranks;
  made_up.batch = batch;
  made_up.rows.lambda = lambda;
  return made_up;
}

}  // namespace

TEST_CASE("a layer of qwen3-30b-a3b reads its projections, caches, router and activated experts") {
  const LayerBytes bytes = metro::layer_bytes(shape("qwen3-30b-a3b"), 4, 10.5, CostFigures{});

  CHECK(bytes.attention == 2.0 * (2 * 4096 * 2048 + 2 * 512 * 2048));
  CHECK(bytes.kv == 4.0 * 2048 * 2 * 4 * 128 * 4);  // sequences, tokens, K and V, heads, width, bytes
  CHECK(bytes.beside_experts == 2.0 * 128 * 2048);
  CHECK(bytes.experts == 10.5 * 2 * 3 * 2048 * 768);
  CHECK(bytes.total() == bytes.attention + bytes.kv + bytes.beside_experts + bytes.experts);
}

TEST_CASE("a step of deepseek-v3 reads 61 layers, 3 of them dense, shared experts and the head") {
  CostFigures figures;
  figures.weight_bytes = 1.0;
  figures.context = 100.0;

  const double bytes = metro::step_bytes(shape("deepseek-v3"), 2, 8.0, figures);

  const double attention = 1536.0 * 7168 + 24576.0 * 1536 + 576.0 * 7168 + 32768.0 * 512 + 7168.0 * 16384;
  const double expert = 3.0 * 7168 * 2048;
  const double kv = 2.0 * 100 * 576 * 4;
  CHECK(bytes == Approx(61 * (attention + kv) + 58 * (256.0 * 7168 + expert + 8 * expert) + 3 * 3.0 * 7168 * 18432 +
                        129280.0 * 7168));
}

TEST_CASE("a step of many launches takes as long as launching them, from graphs as long as reading and the gaps") {
  ScalingPoint made_up = point(1, 1, 8.0);
  made_up.cost.attention = 1e-3;
  made_up.cost.experts = 0.5e-3;

  const GpuStep step = metro::gpu_step(shape("qwen3-30b-a3b"), made_up, CostFigures{},
                                       {.launch_s = 3e-6, .gap_s = 1e-6, .graph_s = 1e-5});

  // 12 of attention (norm, 4 projections, 2 norms, 2 rotations, write, attend, add), 11 of experts (norm, router, choice,
  // pack, unpack, route, gate and up, down, pack, check, combine), 4 at the ends.
  CHECK(step.layer_launches == 23);
  CHECK(step.launches == 48 * 23 + 4);
  CHECK(step.graphs == 2 * 48 + 1);
  CHECK(step.read_s == Approx(1.5e-3));
  CHECK(step.alone_s == Approx(1108 * 3e-6));
  CHECK(step.recorded_s == Approx(1.5e-3 + 1108 * 1e-6));
}

TEST_CASE("ranks exchange twice in a layer with experts, and a graph ends there") {
  ScalingPoint made_up = point(8, 8, 100.0);
  made_up.cost.exchange = 2e-3;

  const GpuStep step =
      metro::gpu_step(shape("deepseek-v3"), made_up, CostFigures{}, {.launch_s = 0, .gap_s = 0, .graph_s = 1e-4});

  CHECK(step.graphs == 3 + 2 * 58 + 1);  // a dense layer ends one as well
  CHECK(step.alone_s == Approx(2e-3));
  CHECK(step.recorded_s == Approx(120 * 1e-4));
}
