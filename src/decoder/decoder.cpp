#include "decoder/decoder.hpp"

#include "base/error.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"

#include <algorithm>
#include <utility>

namespace metro {

Decoder::Decoder(CheckpointReader& checkpoint, const Placement& placement, RoutingPolicy decode_policy,
                 Transport& transport, RopeTable rope, const DecoderLimits& limits)
    : spec_(&checkpoint.spec()),
      dense_(checkpoint),
      experts_(checkpoint, placement, transport.rank()),
      rope_(std::move(rope)),
      attention_(*spec_, rope_, limits),
      moe_(*spec_, placement, decode_policy, experts_, transport, limits),
      residual_("residual", limits.max_rows * spec_->hidden_size),
      sampled_("sampled rows", limits.max_sampled_rows * spec_->hidden_size),
      logits_("logits", limits.max_sampled_rows * spec_->vocab_size) {
  sampled_offsets_.reserve(static_cast<std::size_t>(limits.max_sampled_rows));
}

const float* Decoder::forward(const RowBatch& batch, StepObserver* observer) {
  const std::int64_t num_rows = batch.num_rows();
  const std::int64_t hidden = spec_->hidden_size;
  METRO_REQUIRE(num_rows * hidden <= residual_.size(), "more rows than the buffers hold");

  embed(dense_.embed(), batch.token_ids.data(), num_rows, residual_.data());
  std::int64_t moe_layer = 0;
  for (std::int64_t i = 0; i < spec_->num_layers; ++i) {
    const DenseLayer& layer = dense_.layer(i);
    attention_.run(i, layer, batch, residual_.data());
    if (spec_->layers[static_cast<std::size_t>(i)] == LayerKind::moe) {
      moe_.run(moe_layer++, layer, batch, residual_.data(), observer);
    } else {
      moe_.run_dense(layer, num_rows, residual_.data());
    }
  }

  return logits_of(batch.sampled_rows);
}

const float* Decoder::logits_of(std::span<const std::int32_t> rows) {
  const std::int64_t hidden = spec_->hidden_size;
  const auto num_sampled = static_cast<std::int64_t>(rows.size());
  METRO_REQUIRE(num_sampled * hidden <= sampled_.size(), "more sampled rows than the buffers hold");
  sampled_offsets_.clear();
  for (const std::int32_t row : rows) {
    sampled_offsets_.push_back(row * hidden);
  }
  gather_rows(residual_.data(), sampled_offsets_.data(), num_sampled, hidden, sampled_.data());
  rms_norm(sampled_.data(), num_sampled, hidden, dense_.norm().data(), spec_->norm_eps, sampled_.data());
  linear(sampled_.data(), num_sampled, dense_.lm_head(), logits_.data());
  return logits_.data();
}

MemoryPlan plan_memory(const CheckpointReader& checkpoint, const Placement& placement, std::int64_t rank,
                       const DecoderLimits& limits) {
  const ModelSpec& spec = checkpoint.spec();
  constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t max_served = placement.num_ranks * limits.max_rows * spec.moe.top_k;
  const std::int64_t round_rows = std::clamp<std::int64_t>(limits.exchange_bytes / ExpertService::bytes_per_row(spec),
                                                           1, std::max<std::int64_t>(max_served, 1)) +
                                  placement.num_ranks;
  const std::int64_t owned = limits.max_rows * spec.moe.top_k;
  MemoryPlan plan;
  plan.dense = DenseWeights::planned_bytes(checkpoint) +
               limits.max_context * spec.attention.head_dim * float_bytes;  // and the RoPE table
  plan.experts = hosted_expert_bytes(checkpoint, placement, rank);
  plan.kv = limits.kv_blocks * AttentionStep::kv_bytes_per_block(spec, limits.block_tokens);
  plan.buffers =
      AttentionStep::scratch_bytes(spec, limits) + round_rows * ExpertService::bytes_per_row(spec) +
      owned * spec.hidden_size * float_bytes +  // results
      (placement.num_ranks + 1) * limits.max_sampled_rows * (spec.hidden_size + spec.moe.top_k) * float_bytes +
      limits.max_rows * std::min(spec.moe.top_k, placement.num_ranks) * spec.hidden_size * float_bytes +
      limits.max_rows * (3 * spec.hidden_size + spec.moe.num_experts + spec.dense_intermediate_size) * float_bytes +
      limits.max_sampled_rows * (spec.hidden_size + spec.vocab_size) * float_bytes;
  return plan;
}

}  // namespace metro
