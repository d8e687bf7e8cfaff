// Made-up records of a run.
#pragma once

#include "report/run_records.hpp"

#include <string>
#include <vector>

namespace metro::test {

inline StepMetrics prefill_step() {
  StepMetrics step;
  step.kind = StepKind::prefill;
  step.rows = 12;
  step.sequences = 2;
  step.begin_s = 0.5;
  step.seconds = 0.25F;
  step.bytes_sent = 1000;
  return step;
}

inline StepMetrics decode_step(double begin_s, std::vector<LayerActivation> layers) {
  StepMetrics step;
  step.kind = StepKind::decode;
  step.rows = 2;
  step.sequences = 2;
  step.begin_s = begin_s;
  step.seconds = 0.5F;
  for (std::size_t phase = 0; phase < num_phases; ++phase) {
    step.phases.max[phase] = 0.125F * static_cast<float>(phase + 1);
    step.phases.mean[phase] = 0.0625F * static_cast<float>(phase + 1);
  }
  step.bytes_sent = 1000;
  step.layers = std::move(layers);
  return step;
}

// Its first token comes 0.25 s after its first step, its last token 1.5 s later.
inline RequestMetrics request(std::int64_t id, std::int32_t prompt_tokens, std::int32_t generated_tokens,
                              FinishReason reason) {
  RequestMetrics request;
  request.id = id;
  request.custom_id = "request-" + std::to_string(id);
  request.prompt_tokens = prompt_tokens;
  request.generated_tokens = generated_tokens;
  request.finish_reason = reason;
  request.first_step_s = 0.5;
  request.first_token_s = 0.75;
  request.last_token_s = generated_tokens == 1 ? 0.75 : 2.25;
  return request;
}

// Of the placement below, before step `step`.
inline RebalanceMetrics rebalance(std::int64_t step, std::vector<std::int32_t> slot_to_expert) {
  RebalanceMetrics rebalance;
  rebalance.step = step;
  rebalance.begin_s = 1.25;
  rebalance.seconds = 0.125;
  rebalance.slots_moved = 5;
  rebalance.experts_fetched = 4;
  rebalance.bytes_sent = 2048;
  rebalance.bytes_read = 512;
  rebalance.balance_before = 0.25;
  rebalance.balance_after = 0.75;
  rebalance.slot_to_expert = std::move(slot_to_expert);
  return rebalance;
}

// Two ranks on two nodes; a dense layer and two with 4 experts.
inline RunIdentity identity() {
  RunIdentity identity;
  identity.build = "metro 1.2.3 (test)";
  identity.software = "some MPI";
  identity.started = "2025-01-31T12:00:00Z";
  identity.deck = "[model]\ncheckpoint = \"model.h5\"\n";
  identity.checkpoint = "model.h5";
  identity.checkpoint_digest = "0123456789abcdef";
  identity.transport = "mpi";
  identity.decode_policy = "exact";
  identity.prefill_policy = "even";
  identity.decode_exchange = "allgather";
  identity.placement_name = "trivial";
  identity.spec.family = "qwen3_moe";
  identity.spec.num_layers = 3;
  identity.spec.hidden_size = 64;
  identity.spec.vocab_size = 1000;
  identity.spec.attention = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 16};
  identity.spec.moe.num_experts = 4;
  identity.spec.moe.top_k = 2;
  identity.spec.moe.intermediate_size = 32;
  identity.spec.layers = {LayerKind::moe, LayerKind::dense, LayerKind::moe};
  identity.placement = {2, 4, 2, 3, {0, 1, 2, 3, 0, -1, 3, 2, 1, 0, 3, -1}};
  identity.rank_to_host = {"node-a", "node-b"};
  identity.rank_to_node = {0, 1};
  identity.threads_per_rank = 2;
  identity.rank_to_binding = {{"0-3", "", "0,2", "0 NVIDIA H200 0000:17:00.0, 139.8 GiB"},
                              {"0-3", "", "0,2", "1 NVIDIA H200 0000:18:00.0, 139.8 GiB"}};
  identity.shard = "1/4";
  return identity;
}

inline RunTotals totals() {
  RunTotals totals;
  totals.load_s = 1.5;
  totals.run_s = 4.0;
  totals.num_lines = 40;
  totals.num_own_lines = 10;
  totals.num_rejected = 2;
  totals.num_repeated_ids = 3;
  totals.bytes_read_max = 2048;
  totals.bytes_read_sum = 4096;
  totals.bytes_sent_max = 1024;
  totals.bytes_sent_sum = 3072;
  return totals;
}

}  // namespace metro::test
