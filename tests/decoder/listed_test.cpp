// Decode that the device routes and lists itself, against decode with lists of the host: the same logits in every bit,
// the same reports, by kernels one by one and as graphs. On the emulated device, at several rank counts.
#include "decoder/decoder.hpp"
#include "decoder/listed_decode.hpp"
#include "device_double/device_double.hpp"
#include "kernels/buffer.hpp"
#include "support/expect_error.hpp"
#include "support/model_fixture.hpp"
#include "transport/device_exchange.hpp"
#include "transport/nccl_exchange.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

using metro::RoutingPolicy;
using metro::test::ScratchCheckpoint;
using metro::test::SequenceBatch;
namespace cuda_double = metro::device_double;

namespace {

constexpr std::int64_t prompt_length = 5;
constexpr std::int64_t most_sequences = 3;

// Sequences of a rank that are alive in each decode step: all numbers up to 3 on some rank, twice and more, so that
// steps of one size come again; rank 1 has none at times.
constexpr std::int64_t alive[][4] = {{3, 2, 3, 1}, {3, 0, 2, 3}, {1, 0, 1, 1}, {2, 1, 2, 2}, {3, 2, 1, 3},
                                     {1, 1, 1, 0}, {1, 0, 0, 1}, {3, 3, 2, 0}, {2, 0, 1, 2}};

struct Setting {
  RoutingPolicy policy = RoutingPolicy::exact;
  std::int64_t slots_per_rank = 0;  // 0: just enough
  metro::ListedSettings listed = {};
  bool moves = false;  // in the middle experts go to the next rank
};

// What was observed of all layers and steps, in order.
struct Report final : metro::StepObserver {
  void router_choices(std::int64_t moe_layer, std::int64_t num_rows, std::span<const std::int32_t> expert_ids,
                      std::span<const float> weights) override {
    numbers.push_back(moe_layer * 1000 + num_rows);
    numbers.insert(numbers.end(), expert_ids.begin(), expert_ids.end());
    for (const float weight : weights) {
      numbers.push_back(static_cast<std::int64_t>(weight * 0x1p30F));
    }
  }
  void routed(std::int64_t moe_layer, std::span<const std::int32_t> counts,
              std::span<const std::int32_t> activated) override {
    numbers.push_back(moe_layer);
    numbers.insert(numbers.end(), counts.begin(), counts.end());
    // Between equally good routings the device may choose another one.
    numbers.push_back(*std::max_element(activated.begin(), activated.end()));
  }
  std::vector<std::int64_t> numbers;
};

struct Outcome {
  std::vector<float> logits;
  std::vector<std::int64_t> report;
  std::string why_no_graphs;
};

metro::Placement placement_of(const metro::ModelSpec& spec, std::int64_t num_ranks, std::int64_t slots_per_rank) {
  const std::int64_t enough = (spec.moe.num_experts + num_ranks - 1) / num_ranks;
  return metro::place_eplb({}, spec.num_moe_layers(), spec.moe.num_experts, 1, 1, num_ranks,
                           std::max(enough, slots_per_rank));
}

metro::DecoderLimits limits_of(const Setting& setting) {
  return {.max_rows = 32,
          .max_decode_rows = most_sequences,
          .max_sampled_rows = most_sequences,
          .max_context = 24,
          .kv_blocks = most_sequences * 6,
          .block_tokens = 4,
          .exchange_bytes = 1 << 20,
          .movable_experts = setting.moves,
          .listed = setting.listed};
}

// A decoder of the job with its sequences, prompts done.
class Run {
 public:
  Run(metro::CheckpointReader& checkpoint, metro::DeviceExchange& exchange, const Setting& setting,
      const metro::Placement& placement)
      : vocab_(checkpoint.spec().vocab_size),
        limits_(limits_of(setting)),
        decoder_(checkpoint, {checkpoint, limits_.max_context, metro::Sharing::per_rank, exchange.transport()},
                 placement, {.decode = setting.policy}, exchange, limits_),
        batch_(limits_, exchange.transport(), checkpoint.spec().rope.switch_at > 0 ? prompt_length : 0) {
    for (std::int64_t sequence = 0; sequence < most_sequences; ++sequence) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(limits_.max_context));
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto place = static_cast<std::int64_t>(i);
        tokens[i] = static_cast<std::int32_t>(
            ((exchange.rank() + 1) * 131 + sequence * 37 + place * place * 17 + place * 7) % vocab_);
      }
      batch_.add(tokens);
    }
    first_.assign(most_sequences, 0);
    end_.assign(most_sequences, prompt_length);
    forward(false);
    first_ = end_;
  }

  // One more token of this rank's first num_alive sequences.
  void step(std::int64_t num_alive) {
    for (std::int64_t sequence = 0; sequence < num_alive; ++sequence) {
      ++end_[static_cast<std::size_t>(sequence)];
    }
    forward(true);
    first_ = end_;
  }

  metro::Decoder& decoder() { return decoder_; }
  Outcome outcome() const { return {logits_, report_.numbers, decoder_.why_no_graphs()}; }

 private:
  void forward(bool decode) {
    const metro::RowBatch rows = batch_.rows(decode, first_, end_);
    const float* const logits = decoder_.forward(rows, &report_);
    std::vector<float> own(rows.sampled_rows.size() * static_cast<std::size_t>(vocab_));
    metro::copy_to_host(std::span<float>(own), logits);
    logits_.insert(logits_.end(), own.begin(), own.end());
  }

  std::int64_t vocab_;
  metro::DecoderLimits limits_;
  metro::Decoder decoder_;
  SequenceBatch batch_;
  std::vector<std::int64_t> first_, end_;
  std::vector<float> logits_;
  Report report_;
};

Outcome run(metro::CheckpointReader& checkpoint, metro::DeviceExchange& exchange, const Setting& setting) {
  Run one(checkpoint, exchange, setting, placement_of(checkpoint.spec(), exchange.size(), setting.slots_per_rank));
  for (std::size_t step = 0; step < std::size(alive); ++step) {
    if (setting.moves && step == std::size(alive) / 2) {
      metro::Placement next = one.decoder().placement();
      for (std::int64_t layer = 0; layer < next.num_layers; ++layer) {
        const auto begin = next.slot_to_expert.begin() + layer * next.num_slots();
        std::rotate(begin, begin + next.slots_per_rank, begin + next.num_slots());
      }
      one.decoder().switch_placement(next, metro::WeightSource::peers);
    }
    one.step(alive[step][exchange.rank() % 4]);
  }
  return one.outcome();
}

struct Job {
  std::unique_ptr<metro::Transport> transport = metro::make_mpi_transport(60.0);
  std::unique_ptr<metro::DeviceExchange> exchange = metro::make_nccl_exchange(*transport, 60.0);
};

constexpr metro::ListedSettings one_by_one{.most_rows = 4};
constexpr metro::ListedSettings graphs{.most_rows = 4, .graphs = true};
constexpr metro::ListedSettings fixed_messages{.most_rows = 4, .fixed_messages = true, .graphs = true};
// Steps with more rows go by lists of the host.
constexpr metro::ListedSettings small_steps{.most_rows = 2, .graphs = true};

}  // namespace

TEST_CASE("a decode step that the device lists gives the bits and the report of one that the host lists") {
  // With and without dense layers, with a shared expert, with latents, with the second of two sets of angles, with
  // windows, sinks and biases.
  const std::string name = GENERATE("qwen3_moe", "qwen3_moe_mixed", "qwen2_moe", "deepseek_v3", "deepseek_v2_lite",
                                    "phimoe_longrope", "gpt_oss");
  Job job;
  const ScratchCheckpoint file(metro::test::family_folder(name));
  metro::CheckpointReader checkpoint(file.path());

  for (const RoutingPolicy policy :
       {RoutingPolicy::metro, RoutingPolicy::metro_scarce, RoutingPolicy::exact, RoutingPolicy::even}) {
    const std::int64_t slots = policy == RoutingPolicy::even ? 0 : 5;
    const Outcome by_host = run(checkpoint, *job.exchange, {policy, slots});
    for (const metro::ListedSettings& listed : {one_by_one, graphs, fixed_messages, small_steps}) {
      CAPTURE(name, metro::name_of(policy), listed.most_rows, listed.fixed_messages, listed.graphs);
      const Outcome by_device = run(checkpoint, *job.exchange, {policy, slots, listed});
      CHECK(by_device.logits == by_host.logits);
      CHECK(by_device.report == by_host.report);
      CHECK(by_device.why_no_graphs.empty());
    }
  }
}

TEST_CASE("steps after experts have moved are recorded anew") {
  Job job;
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  metro::CheckpointReader checkpoint(file.path());

  const Outcome by_host = run(checkpoint, *job.exchange, {RoutingPolicy::exact, 4, {}, true});
  const Outcome by_device = run(checkpoint, *job.exchange, {RoutingPolicy::exact, 4, graphs, true});

  CHECK(by_device.logits == by_host.logits);
  CHECK(by_device.report == by_host.report);
}

TEST_CASE("a size of step is enqueued once, recorded once and then launched as graphs") {
  Job job;
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  metro::CheckpointReader checkpoint(file.path());
  Run one(checkpoint, *job.exchange, {RoutingPolicy::exact, 0, graphs},
          placement_of(checkpoint.spec(), job.exchange->size(), 0));
  // Two per MoE layer, and the one that ends the last.
  const std::int64_t segments = 2 * checkpoint.spec().num_moe_layers() + 1;
  const auto launched = [&](std::int64_t num_alive) {
    cuda_double::reset();
    one.step(num_alive);
    return std::pair(cuda_double::num_calls("cudaStreamBeginCapture"), cuda_double::num_calls("cudaGraphLaunch"));
  };

  CHECK(launched(2) == std::pair<std::int64_t, std::int64_t>{0, 0});
  CHECK(launched(2) == std::pair{segments, segments});
  CHECK(launched(2) == std::pair{std::int64_t{0}, segments});
  CHECK(launched(1) == std::pair<std::int64_t, std::int64_t>{0, 0});
  CHECK(launched(3) == std::pair<std::int64_t, std::int64_t>{0, 0});
  CHECK(launched(1) == std::pair{segments, segments});
  CHECK(launched(2) == std::pair{std::int64_t{0}, segments});
}

TEST_CASE("if one rank's device refuses a graph all ranks go on without, with the same bits") {
  Job job;
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  metro::CheckpointReader checkpoint(file.path());
  const Outcome by_host = run(checkpoint, *job.exchange, {});
  const std::int64_t refusing = job.exchange->size() - 1;

  for (const char* call :
       {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch"}) {
    CAPTURE(call);
    cuda_double::reset();
    if (job.exchange->rank() == refusing) {
      cuda_double::fail_call(call, cudaErrorMemoryAllocation, 3);
    }
    const Outcome by_device = run(checkpoint, *job.exchange, {RoutingPolicy::exact, 0, graphs});
    cuda_double::reset();

    CHECK(by_device.logits == by_host.logits);
    CHECK(by_device.report == by_host.report);
    CHECK_THAT(by_device.why_no_graphs, Catch::Contains(std::string(call)) && Catch::Contains("failed: out of memory"));
    if (job.exchange->size() > 1) {
      CHECK_THAT(by_device.why_no_graphs, Catch::StartsWith("rank " + std::to_string(refusing) + " ("));
    }
  }
}

TEST_CASE("ranks that route a layer by different placements stop at the end of the step and name it") {
  Job job;
  if (job.exchange->size() < 2) {
    return;
  }
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  metro::CheckpointReader checkpoint(file.path());
  // Every rank has all experts, so that each can serve anything and none moves.
  const std::int64_t slots = checkpoint.spec().moe.num_experts;
  metro::Placement placement = placement_of(checkpoint.spec(), job.exchange->size(), slots);
  Run one(checkpoint, *job.exchange, {RoutingPolicy::exact, slots, fixed_messages, true}, placement);
  if (job.exchange->rank() == 0) {
    const auto begin = placement.slot_to_expert.begin() + placement.num_slots();  // of layer 1
    std::reverse(begin, begin + placement.num_slots());
  }
  one.decoder().switch_placement(placement, metro::WeightSource::checkpoint);

  metro::test::expect_error(metro::ExitCode::internal, {"disagree about the routing of MoE layer 1"},
                            [&] { one.step(1); });
}
