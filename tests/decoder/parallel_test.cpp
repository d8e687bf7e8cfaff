// Expert parallelism never changes a bit: every rank also runs all sequences alone, with all experts, and compares.
// Run at several rank counts.
#include "decoder/decoder.hpp"
#include "support/model_fixture.hpp"
#include "support/scaled_folders.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

using metro::ConvertedWeights;
using metro::RoutingPolicy;
using metro::test::ScratchCheckpoint;
using metro::test::SequenceBatch;

namespace {

constexpr std::int64_t num_decode_steps = 3;

std::vector<std::int32_t> made_up_tokens(std::int64_t length, std::int64_t seed, std::int64_t vocab) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<std::int32_t>((seed * 131 + i * i * 17 + i * 7) % vocab));
  }
  return tokens;
}

// Lengths of the prompts of each rank: rank 1 has none, the others differ.
std::vector<std::int64_t> prompt_lengths(std::int64_t rank) {
  return rank % 3 == 1 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{3 + rank, 17, 1 + 2 * rank};
}

struct Setting {
  RoutingPolicy policy;
  std::int64_t slots_per_rank;  // 0: just enough
  std::int64_t exchange_bytes;  // small: several rounds
  std::int64_t block_tokens;
  bool empty_slots = false;  // replicas are left out, their slots stay empty
  RoutingPolicy prefill = RoutingPolicy::even;
  bool moves = false;  // before every step but the first experts go to the next rank
  metro::ExchangeSettings exchange = {};
};

metro::Placement placement_of(const metro::ModelSpec& spec, std::int64_t num_ranks, const Setting& setting) {
  const std::int64_t num_experts = spec.moe.num_experts;
  const std::int64_t enough = (num_experts + num_ranks - 1) / num_ranks;
  const std::int64_t slots = std::max(enough, setting.slots_per_rank);
  if (!setting.empty_slots) {
    return metro::place_eplb({}, spec.num_moe_layers(), num_experts, 1, 1, num_ranks, slots);
  }
  metro::Placement placement = metro::place_trivial(spec.num_moe_layers(), num_experts, num_ranks, slots);
  for (std::int64_t i = 0; i < std::ssize(placement.slot_to_expert); ++i) {
    if (i % placement.num_slots() >= num_experts) {
      placement.slot_to_expert[static_cast<std::size_t>(i)] = metro::Placement::empty_slot;
    }
  }
  return placement;
}

metro::Placement rotated(metro::Placement placement) {
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    const auto begin = placement.slot_to_expert.begin() + layer * placement.num_slots();
    std::rotate(begin, begin + placement.num_slots() - placement.slots_per_rank, begin + placement.num_slots());
  }
  return placement;
}

// Logits of all steps of the sequences of `owner`, computed in `transport`.
std::vector<float> run(metro::CheckpointReader& checkpoint, metro::Transport& transport, const Setting& setting,
                       std::int64_t owner, metro::StepObserver* observer = nullptr) {
  const metro::ModelSpec& spec = checkpoint.spec();
  const metro::Placement placement = placement_of(spec, transport.size(), setting);
  metro::DecoderLimits limits{.max_rows = 64,
                              .max_decode_rows = 3,
                              .max_sampled_rows = 3,
                              .max_context = 32,
                              .kv_blocks = 3 * 32,
                              .block_tokens = setting.block_tokens,
                              .exchange_bytes = setting.exchange_bytes,
                              .movable_experts = setting.moves,
                              .exchange = setting.exchange};
  const metro::RoutingSettings routing{.decode = setting.policy,
                                       .prefill = setting.prefill,
                                       .seed = 5,
                                       .rank_to_node = metro::nodes_of_size(transport.size(), 2),
                                       .prefer_own_node = true};
  const auto exchange = metro::make_device_exchange(transport);
  metro::Decoder decoder(checkpoint, {checkpoint, limits.max_context, metro::Sharing::per_rank, transport}, placement,
                         routing, *exchange, limits);
  const metro::MemoryPlan planned =
      metro::plan_memory_of_ranks(checkpoint, placement, limits,
                                  std::vector<std::int64_t>(static_cast<std::size_t>(transport.size()),
                                                            1))[static_cast<std::size_t>(transport.rank())];
  const metro::MemoryPlan held = decoder.memory();
  CHECK(held.dense == planned.dense);
  CHECK(held.experts == planned.experts);
  CHECK(held.kv == planned.kv);
  CHECK(held.buffers == planned.buffers);
  SequenceBatch batch(limits, transport);
  std::vector<std::int64_t> first, end;
  for (const std::int64_t length : prompt_lengths(owner)) {
    batch.add(made_up_tokens(length + num_decode_steps, owner + length, spec.vocab_size));
    first.push_back(0);
    end.push_back(length);
  }
  std::vector<float> all;
  for (std::int64_t step = 0; step <= num_decode_steps; ++step) {
    if (setting.moves && step > 0) {
      decoder.switch_placement(rotated(decoder.placement()),
                               step % 2 == 0 ? metro::WeightSource::checkpoint : metro::WeightSource::peers);
    }
    const float* logits = decoder.forward(batch.rows(step > 0, first, end), observer);
    all.insert(all.end(), logits, logits + static_cast<std::int64_t>(first.size()) * spec.vocab_size);
    first = end;
    for (std::int64_t& position : end) {
      ++position;
    }
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

TEST_CASE("logits do not depend on ranks, policy, replicas, moves, rounds or block size by a single bit") {
  using Model = std::pair<std::string, ConvertedWeights>;
  const auto [name, weights] = GENERATE(
      Model("qwen3_moe", ConvertedWeights::stored), Model("qwen3_moe_mixed", ConvertedWeights::stored),
      Model("qwen3_moe_sharded_bf16", ConvertedWeights::stored), Model("qwen3_moe_mixed", ConvertedWeights::int8),
      Model("qwen3_moe_sharded_bf16", ConvertedWeights::int8), Model("qwen2_moe", ConvertedWeights::stored),
      Model("qwen2_moe", ConvertedWeights::int8), Model("deepseek_v3_yarn", ConvertedWeights::stored),
      Model("deepseek_v2_lite", ConvertedWeights::int8), Model("gpt_oss", ConvertedWeights::stored));
  const bool is_int8 = weights == ConvertedWeights::int8;
  const ScratchCheckpoint file(metro::test::family_folder(name), weights);
  metro::CheckpointReader checkpoint(file.path());
  const auto transport = metro::make_mpi_transport(60.0);
  metro::Transport& job = *transport;
  const auto self = metro::make_self_transport();
  const std::vector<float> alone = run(checkpoint, *self, {RoutingPolicy::exact, 0, 1 << 20, 16}, job.rank());

  const std::int64_t experts = checkpoint.spec().moe.num_experts;
  for (const Setting& setting :
       {Setting{RoutingPolicy::exact, 0, 1 << 20, 4}, Setting{RoutingPolicy::even, experts, 1 << 20, 16},
        Setting{RoutingPolicy::metro, 5, 1, 3}, Setting{RoutingPolicy::metro_scarce, 4, 3000, 16},
        Setting{RoutingPolicy::even, 5, 5000, 1}, Setting{RoutingPolicy::exact, 6, 1 << 20, 16, true},
        Setting{RoutingPolicy::exact, 5, 1 << 20, 16, false, RoutingPolicy::even, true},
        Setting{RoutingPolicy::makespan, 5, 1 << 20, 16, false, RoutingPolicy::exact, true},
        Setting{RoutingPolicy::even, 3, 1, 16, true, RoutingPolicy::local, true}}) {
    CAPTURE(name, is_int8, metro::name_of(setting.policy), setting.slots_per_rank, setting.exchange_bytes);
    const std::vector<float> together = run(checkpoint, job, setting, job.rank());
    CHECK(same_bits(together, alone));
  }
}

TEST_CASE("fp8 and mxfp4 give the logits of the fp32 weights they stand for, on all ranks, by every bit") {
  using metro::test::Scaled;
  const auto [folder, form] = GENERATE(std::pair(metro::test::family_folder("qwen3_moe"), Scaled::fp8),
                                       std::pair(metro::test::family_folder("qwen3_moe_mixed"), Scaled::fp8),
                                       std::pair(metro::test::tiny_folder(), Scaled::mxfp4));
  const auto transport = metro::make_mpi_transport(60.0);
  if (form == Scaled::mxfp4 && transport->size() > 3) {
    return;  // the larger model
  }
  const metro::test::ScaledFolders folders(folder, form);
  const ScratchCheckpoint scaled_file(folders.write_published()), float_file(folders.write_widened());
  metro::CheckpointReader scaled(scaled_file.path()), floats(float_file.path());
  REQUIRE(scaled.info("/layers/001/experts/down").type ==
          (form == Scaled::fp8 ? metro::StoredType::fp8 : metro::StoredType::mxfp4));
  const auto self = metro::make_self_transport();
  const std::vector<float> expected = run(floats, *self, {RoutingPolicy::exact, 0, 1 << 20, 16}, transport->rank());

  for (const Setting& setting :
       {Setting{RoutingPolicy::exact, 0, 1 << 20, 4}, Setting{RoutingPolicy::even, 5, 5000, 16},
        Setting{RoutingPolicy::metro, 6, 1 << 20, 16, true}}) {
    CAPTURE(folder, metro::name_of(setting.policy), setting.exchange_bytes);
    CHECK(same_bits(run(scaled, *transport, setting, transport->rank()), expected));
  }
}

TEST_CASE("logits do not depend on how decode rows travel and where the gate runs by a single bit") {
  using metro::ExchangeMode;
  const std::string name = GENERATE("qwen3_moe", "qwen3_moe_mixed");
  const auto transport = metro::make_mpi_transport(60.0);
  metro::Transport& job = *transport;
  if (name != "qwen3_moe" && job.size() > 2) {
    return;  // fifteen passes; more ranks would only be slow
  }
  const ScratchCheckpoint file(metro::test::family_folder(name));
  metro::CheckpointReader checkpoint(file.path());
  const auto self = metro::make_self_transport();
  const std::vector<float> alone = run(checkpoint, *self, {RoutingPolicy::exact, 0, 1 << 20, 16}, job.rank());
  // Enough, one round for each assignment, empty slots, replicas under a policy that looks at tokens, moves.
  const std::vector<Setting> settings{
      {RoutingPolicy::exact, 0, 1 << 20, 16},
      {RoutingPolicy::metro, 5, 1, 16},
      {RoutingPolicy::exact, 6, 5000, 16, true},
      {RoutingPolicy::vllm_random, 5, 1 << 20, 16, false, RoutingPolicy::exact},
      {RoutingPolicy::even, 5, 3000, 16, false, RoutingPolicy::even, true},
  };

  for (Setting setting : settings) {
    for (const metro::ExchangeSettings& exchange : {metro::ExchangeSettings{ExchangeMode::allgather, 0, true},
                                                    metro::ExchangeSettings{ExchangeMode::ids_then_alltoall},
                                                    metro::ExchangeSettings{ExchangeMode::automatic, 9}}) {
      setting.exchange = exchange;
      CAPTURE(name, metro::name_of(setting.policy), setting.exchange_bytes, metro::name_of(exchange.mode),
              exchange.most_allgather_rows, exchange.gathered_gate);
      CHECK(same_bits(run(checkpoint, job, setting, job.rank()), alone));
    }
  }
}

TEST_CASE("logits do not depend on the routing policy of either phase by a single bit, on nodes of two ranks") {
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  metro::CheckpointReader checkpoint(file.path());
  const auto transport = metro::make_mpi_transport(60.0);
  if (transport->size() > 4) {
    return;  // twenty passes; more ranks would only be slow
  }
  metro::Transport& job = *transport;
  const auto self = metro::make_self_transport();
  const std::vector<float> alone = run(checkpoint, *self, {RoutingPolicy::exact, 0, 1 << 20, 16}, job.rank());

  const auto policies = metro::routing_policies();
  for (std::size_t i = 0; i < policies.size(); ++i) {
    // Every policy once in each phase.
    const Setting setting{policies[i], 6, i % 2 == 0 ? 1 << 20 : 4000, 16, false, policies[policies.size() - 1 - i]};
    CAPTURE(metro::name_of(setting.policy), metro::name_of(setting.prefill));
    CHECK(same_bits(run(checkpoint, job, setting, job.rank()), alone));
  }
}

TEST_CASE("a rank reads the replicated tensors and the experts of its own slots, and nothing else") {
  const ScratchCheckpoint file(metro::test::tiny_folder());
  metro::CheckpointReader checkpoint(file.path());
  const auto transport = metro::make_mpi_transport(60.0);
  metro::Transport& job = *transport;
  const metro::ModelSpec& spec = checkpoint.spec();
  const std::int64_t slots = metro::slots_for_replication(spec.moe.num_experts, job.size(), 1.25);
  const metro::Placement placement =
      metro::place_trivial(spec.num_moe_layers(), spec.moe.num_experts, job.size(), slots);
  const metro::DecoderLimits limits{.max_rows = 1,
                                    .max_sampled_rows = 1,
                                    .max_context = 4,
                                    .kv_blocks = 1,
                                    .block_tokens = 4,
                                    .exchange_bytes = 1 << 16};

  const auto exchange = metro::make_device_exchange(job);

  const metro::Decoder decoder(checkpoint, {checkpoint, limits.max_context, metro::Sharing::per_rank, job}, placement,
                               metro::RoutingSettings{}, *exchange, limits);

  // From the shapes alone: bf16, hidden 128, width 64, 4 query and 2 KV heads of 32, 32 experts, vocabulary 2048.
  const std::int64_t replicated =
      2 * (2 * 2048 * 128 + 128 + 6 * (128 * 128 * 2 + 2 * 64 * 128 + 2 * 32 + 2 * 128 + 32 * 128));
  const std::int64_t expert = 2 * 3 * 64 * 128;
  const std::int64_t own_experts = std::min<std::int64_t>(slots, 32);
  CHECK(checkpoint.bytes_read() == replicated + 6 * own_experts * expert);
}

TEST_CASE("of an int8 checkpoint a rank reads a byte per weight of its experts and projections, and their scales") {
  const ScratchCheckpoint file(metro::test::tiny_folder(), ConvertedWeights::int8);
  metro::CheckpointReader checkpoint(file.path());
  const metro::Placement placement = metro::place_trivial(6, 32, 4, 8);

  const auto self = metro::make_self_transport();
  const metro::DenseWeights dense(checkpoint, metro::Sharing::per_rank, *self);
  const std::int64_t dense_bytes = checkpoint.bytes_read();
  const metro::ResidentExpertStore experts(checkpoint, placement, 1, false);
  const std::int64_t expert_bytes = checkpoint.bytes_read() - dense_bytes;

  // Embedding, head, norms and router in bf16; q, k, v, o: 128 + 64 + 64 + 128 rows of 128.
  const std::int64_t rows = 128 + 64 + 64 + 128;
  CHECK(dense_bytes == 2 * (2 * 2048 * 128 + 128 + 6 * (2 * 32 + 2 * 128 + 32 * 128)) + 6 * rows * (128 + 4));
  CHECK(expert_bytes == 6 * 8 * (3 * 64 * 128 + 4 * (2 * 64 + 128)));
  // Packed, 32 columns at a time, all of these shapes without padding: as many bytes as in the file.
  CHECK(experts.num_bytes() == expert_bytes);
  CHECK(metro::resident_expert_bytes(checkpoint, placement, 1, false) == expert_bytes);
  CHECK(dense.num_bytes() == metro::DenseWeights::planned_bytes(checkpoint));
}

TEST_CASE("a rank holds an expert once even if it sits in several of its slots") {
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  metro::CheckpointReader checkpoint(file.path());
  metro::Placement placement = metro::place_trivial(2, 10, 1, 10);

  const std::int64_t once = metro::resident_expert_bytes(checkpoint, placement, 0, false);
  placement = metro::place_trivial(2, 10, 1, 20);

  CHECK(metro::resident_expert_bytes(checkpoint, placement, 0, false) == once);
}
