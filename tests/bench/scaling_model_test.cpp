// The model of bench scaling against closed forms, and the sampled rows against expectation.
#include "bench/scaling_model.hpp"

#include "bench/exchange_model.hpp"

#include <catch2/catch.hpp>

#include <limits>

using metro::CostFigures;
using metro::Machine;
using metro::ModelShape;
using metro::RoutedRows;
using metro::RowSampler;
using metro::StepCost;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
const Machine timeless{"timeless", 8, infinite, infinite, infinite, infinite, infinite};

CostFigures free_figures() {
  CostFigures figures;
  figures.latency_s = figures.hop_s = figures.message_s = 0.0;
  figures.routing_s = figures.routing_rank_s = figures.routing_assignment_s = figures.sequence_s = 0.0;
  return figures;
}

const ModelShape& qwen() {
  return metro::model_shape("qwen3-30b-a3b", "test");
}

const ModelShape& deepseek() {
  return metro::model_shape("deepseek-v3", "test");
}

// Attention of qwen3-30b-a3b in a layer: q and o of 4096 x 2048, k and v of 512 x 2048.
constexpr double qwen_attention = 2048.0 * (2 * 4096 + 2 * 512);
constexpr double qwen_head = 151936.0 * 2048;

RowSampler sampler(std::int64_t num_experts, std::int64_t top_k, std::int64_t num_rows, double skew) {
  return RowSampler({.num_experts = num_experts, .num_tokens = num_rows, .top_k = top_k, .skew = skew});
}

}  // namespace

TEST_CASE("the weights of the published models add up to what their publishers say") {
  const auto billions = [](const char* name) {
    return 1e-9 * metro::weight_counts(metro::model_shape(name, "t")).total;
  };
  CHECK(billions("qwen3-30b-a3b") == Approx(30.5).margin(0.05));
  CHECK(billions("qwen3-235b-a22b") == Approx(235.0).margin(0.5));
  CHECK(billions("mixtral-8x7b") == Approx(46.7).margin(0.05));
  CHECK(billions("deepseek-v3") == Approx(671.0).margin(0.5));
  CHECK(billions("qwen1.5-moe-a2.7b") == Approx(14.3).margin(0.05));
  CHECK(billions("olmoe-1b-7b") == Approx(6.92).margin(0.05));
}

TEST_CASE("a step takes no time where nothing takes time") {
  const StepCost cost = metro::step_cost(qwen(), 64, 8, {2.0, 130.0, 100.0, 60.0}, timeless, free_figures());

  CHECK(cost.total() == 0.0);
}

TEST_CASE("with memory alone a step takes the time to read its weights and its keys and values") {
  Machine machine = timeless;
  machine.memory_bytes_per_s = 1e12;
  const CostFigures figures = free_figures();

  const StepCost cost = metro::step_cost(qwen(), 64, 8, {3.0, 130.0, 100.0, 60.0}, machine, figures);

  const double kv_bytes = 8 * 2048 * 1024 * 4.0;  // 8 sequences of 2048 tokens, 2 x 4 heads of 128, fp32
  CHECK(cost.attention == Approx((48 * (qwen_attention * 2 + 128 * 2048 * 2 + kv_bytes) + qwen_head * 2) / 1e12));
  CHECK(cost.experts == Approx(48 * 3.0 * (3 * 2048 * 768) * 2 / 1e12));
  CHECK(cost.exchange == 0.0);
  CHECK(cost.routing + cost.schedule == 0.0);
}

TEST_CASE("with many rows the arithmetic of the busiest rank counts, not its weights") {
  Machine machine = timeless;
  machine.memory_bytes_per_s = 1e30;
  machine.flops = 1e12;

  const StepCost cost = metro::step_cost(qwen(), 64, 8, {3.0, 130.0, 100.0, 60.0}, machine, free_figures());

  CHECK(cost.experts == Approx(48 * 130.0 * 2 * (3 * 2048 * 768) / 1e12));
  CHECK(cost.attention == Approx((48 * (qwen_attention + 128 * 2048) + qwen_head) * 2 * 8 / 1e12));
}

TEST_CASE("dense layers have an MLP and neither experts nor exchange nor routing") {
  Machine machine = timeless;
  machine.memory_bytes_per_s = 1e12;
  CostFigures figures = free_figures();
  figures.routing_s = 1.0;
  figures.context = 0.0;

  const StepCost cost = metro::step_cost(deepseek(), 8, 1, {1.0, 1.0, 1.0, 1.0}, machine, figures);

  CHECK(cost.routing == 58.0);
  CHECK(cost.experts == Approx(58 * 3.0 * 7168 * 2048 * 2 / 1e12));
  const double attention = 1536.0 * 7168 + 24576.0 * 1536 + 576.0 * 7168 + 32768.0 * 512 + 7168.0 * 16384;
  const double others = 58 * (256.0 * 7168 + 3.0 * 7168 * 2048) + 3 * 3.0 * 7168 * 18432 + 129280.0 * 7168;
  CHECK(cost.attention == Approx((61 * attention + others) * 2 / 1e12));
}

TEST_CASE("int8 weights take half of the time and of the memory of bf16") {
  Machine machine = timeless;
  machine.memory_bytes_per_s = 1e12;
  CostFigures bf16 = free_figures();
  bf16.context = 0.0;
  CostFigures int8 = bf16;
  int8.weight_bytes = 1.0;
  const RoutedRows rows{3.0, 1.0, 1.0, 1.0};

  CHECK(metro::step_cost(qwen(), 64, 1, rows, machine, int8).total() ==
        Approx(0.5 * metro::step_cost(qwen(), 64, 1, rows, machine, bf16).total()));
  CHECK(metro::rank_memory(qwen(), 64, 1, 2, int8).replicated ==
        Approx(0.5 * metro::rank_memory(qwen(), 64, 1, 2, bf16).replicated));
}

TEST_CASE(
    "collectives cost latency, doublings of nodes in an all-gather, and messages to other nodes in an all-to-all") {
  CostFigures figures = free_figures();
  figures.latency_s = 1.0;
  figures.hop_s = 0.01;
  figures.message_s = 0.0001;
  const auto seconds = [&](std::int64_t num_ranks) {
    return metro::exchange_seconds(qwen(), num_ranks, 1, {1.0, 1.0, 1.0, 1.0}, timeless, figures);
  };

  CHECK(seconds(1).gathered == 0.0);
  CHECK(seconds(1).by_ids == 0.0);
  CHECK(seconds(8).gathered == Approx(2.0));
  CHECK(seconds(8).by_ids == Approx(3.0));
  CHECK(seconds(9).gathered == Approx(2.0 + 0.01 + 0.0001));
  CHECK(seconds(64).gathered == Approx(2.0 + 3 * 0.01 + 56 * 0.0001));
  CHECK(seconds(64).by_ids == Approx(3.0 + 3 * 0.01 + 2 * 56 * 0.0001));
  CHECK(seconds(64).least() == seconds(64).gathered);
}

TEST_CASE(
    "bytes go by the link of the node and by that to other nodes at once, as many as there are ranks behind them") {
  Machine inside = timeless;
  inside.inside_bytes_per_s = 1e9;
  Machine network = timeless;
  network.network_bytes_per_s = 1e9;

  const double all = 15 * 4 * (2048 + 8) * 4.0;  // of 15 other ranks, 4 rows each
  CHECK(metro::gathered_bytes(qwen(), 16, 4) == all);
  CHECK(metro::gathered_seconds(qwen(), 16, 4, inside) == Approx(all * 7 / 15 / 1e9));
  CHECK(metro::gathered_seconds(qwen(), 16, 4, network) == Approx(all * 8 / 15 / 1e9));
  CHECK(metro::gathered_seconds(qwen(), 8, 4, network) == 0.0);
  CHECK(metro::gathered_seconds(qwen(), 1, 4, inside) == 0.0);
}

TEST_CASE("the rank that sends or receives most sets the time of an exchange") {
  Machine machine = timeless;
  machine.inside_bytes_per_s = machine.network_bytes_per_s = 1e9;
  machine.ranks_per_node = 1;
  const auto by_ids = [&](const RoutedRows& rows) {
    return metro::exchange_seconds(qwen(), 4, 10, rows, machine, free_figures()).by_ids;
  };

  const double ids = 3 * 10 * 8 * 2.0;
  const double headers = 2 * 3 * 16.0;
  const double row = 2048 * 4.0;
  // It serves 200 of 320 assignments, three of four for others; it receives 25 rows.
  CHECK(by_ids({1.0, 200.0, 25.0, 20.0}) == Approx((ids + headers + row * (25 + 150)) / 1e9));
  // Its own 80 are more than the 60 it serves, and it sends more rows than it receives.
  CHECK(by_ids({1.0, 60.0, 15.0, 20.0}) == Approx((ids + headers + row * (20 + 60)) / 1e9));
}

TEST_CASE("routing and schedule are linear in ranks, assignments and sequences") {
  CostFigures figures = free_figures();
  figures.routing_s = 1.0;
  figures.routing_rank_s = 0.1;
  figures.routing_assignment_s = 0.001;
  figures.sequence_s = 0.5;

  const StepCost cost = metro::step_cost(qwen(), 64, 4, {1.0, 1.0, 1.0, 1.0}, timeless, figures);

  CHECK(cost.routing == Approx(48 * (1.0 + 6.4 + 64 * 4 * 8 * 0.001)));
  CHECK(cost.schedule == Approx(0.5 * 256));
}

TEST_CASE(
    "the memory of a rank: what is replicated, its experts, keys, values and buffers, beside all sequences on the "
    "host") {
  CostFigures figures;
  figures.context = 100.0;

  const metro::RankMemory memory = metro::rank_memory(qwen(), 1024, 8, 2, figures);

  CHECK(memory.replicated == Approx(2 * (48 * (qwen_attention + 128 * 2048) + 2 * qwen_head)));
  CHECK(memory.experts == 2.0 * 48 * 2 * 3 * 2048 * 768);
  CHECK(memory.kv == 8.0 * 100 * 1024 * 4 * 48);
  CHECK(memory.total() == Approx(memory.replicated + memory.experts + memory.kv + figures.buffer_bytes));
  CHECK(memory.host == Approx(8192 * (800.0 + 400.0)));
  CHECK(metro::request_window(4, 2) == 64);
  CHECK(metro::request_window(1024, 8) == 8192);
}

TEST_CASE("one rank activates all experts in use, serves all assignments, and nothing travels") {
  const RoutedRows rows = sampler(128, 8, 4096, 0.0).sample(metro::RoutingPolicy::exact, 1, 64, 128);

  CHECK(rows.lambda == Approx(metro::expected_active({1, 8, 128, 1}, 64)).epsilon(0.01));
  CHECK(rows.assignments == 64 * 8);
  CHECK(rows.received == 0.0);
  CHECK(rows.sent == 0.0);
}

TEST_CASE("when every row needs all experts, every rank activates its own and receives all rows of the others") {
  const RoutedRows rows = sampler(16, 16, 64, 0.7).sample(metro::RoutingPolicy::exact, 4, 5, 4);

  CHECK(rows.lambda == 4.0);
  CHECK(rows.assignments == 20 * 4);
  CHECK(rows.received == 15.0);
  CHECK(rows.sent == 15.0);
}

TEST_CASE("a rank sends its rows to as many ranks as expected when all experts are equally likely") {
  for (const std::int64_t num_ranks : {2, 8, 32}) {
    const RoutedRows rows =
        sampler(128, 8, 8192, 0.0).sample(metro::RoutingPolicy::exact, num_ranks, 4, 128 / num_ranks);
    CAPTURE(num_ranks);
    CHECK(rows.sent / 4 == Approx(metro::expected_other_ranks({1, 8, 128, 1}, num_ranks)).epsilon(0.01));
    CHECK(rows.received >= rows.sent);
  }
}

TEST_CASE("with more ranks than experts exact leaves ranks idle, and even spreads the rows") {
  const RowSampler rows = sampler(16, 2, 4096, 0.0);

  const RoutedRows exact = rows.sample(metro::RoutingPolicy::exact, 64, 64, 1);
  const RoutedRows even = rows.sample(metro::RoutingPolicy::even, 64, 64, 1);

  CHECK(exact.lambda == 1.0);
  CHECK(even.lambda == 1.0);
  CHECK(exact.assignments == Approx(64 * 64 * 2 / 16.0).epsilon(0.15));
  CHECK(even.assignments == Approx(64 * 2).epsilon(0.15));
}
