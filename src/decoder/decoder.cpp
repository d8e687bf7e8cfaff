#include "decoder/decoder.hpp"

#include "base/error.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"

#include <utility>

namespace metro {

ReplicatedTensors::ReplicatedTensors(const WeightReader& checkpoint, std::int64_t max_context, Sharing sharing,
                                     Transport& transport)
    : dense(checkpoint, sharing, transport), rope(checkpoint.spec(), max_context, sharing, transport) {}

Decoder::Decoder(const WeightReader& checkpoint, ReplicatedTensors replicated, const Placement& placement,
                 const RoutingSettings& routing, DeviceExchange& exchange, const DecoderLimits& limits)
    : checkpoint_(&checkpoint),
      spec_(&checkpoint.spec()),
      replicated_(std::move(replicated)),
      placement_(placement),
      experts_(checkpoint, placement, exchange.rank(), limits.movable_experts),
      inputs_(limits, spec_->hidden_size),
      attention_(make_attention(*spec_, replicated_.rope, limits)),
      moe_(*spec_, placement, routing, experts_, exchange, limits, clock_),
      graphs_(limits.listed.graphs && limits.listed.most_rows > 0, exchange.transport()),
      residual_("residual", limits.max_rows * spec_->hidden_size),
      sampled_("sampled rows", limits.max_sampled_rows * spec_->hidden_size),
      logits_("logits", limits.max_sampled_rows * spec_->vocab_size) {
  if (limits.movable_experts) {
    mover_.emplace(checkpoint, experts_, exchange, placement, limits.exchange_bytes);
  }
}

std::int64_t Decoder::switch_placement(const Placement& next, WeightSource source) {
  METRO_REQUIRE(mover_.has_value(), "experts are not movable");
  const std::int64_t num_fetched = mover_->move(placement_, next, source);
  placement_ = next;
  graphs_.forget();
  moe_.switch_placement(next);
  return num_fetched;
}

void Decoder::switch_routing(const RoutingSettings& routing) {
  graphs_.forget();
  moe_.switch_routing(routing);
}

SourceTimes Decoder::measure_sources() {
  METRO_REQUIRE(mover_.has_value(), "experts are not movable");
  return mover_->measure();
}

const float* Decoder::forward(const RowBatch& batch, StepObserver* observer) {
  if (ListedDecode* const listed = moe_.listed_for(batch)) {
    return forward_listed(*listed, batch, observer);
  }
  const std::int64_t num_rows = batch.num_rows();
  const std::int64_t hidden = spec_->hidden_size;
  METRO_REQUIRE(num_rows * hidden <= residual_.size(), "more rows than the buffers hold");

  inputs_.bring(batch, num_rows);
  attention_->begin_step(batch);
  embed(replicated_.dense.embed(), inputs_.token_ids(), num_rows, residual_.data());
  std::int64_t moe_layer = 0;
  for (std::int64_t i = 0; i < spec_->num_layers; ++i) {
    const DenseLayer& layer = replicated_.dense.layer(i);
    attention_->run(i, layer, inputs_.rows(), residual_.data());
    if (spec_->layers[static_cast<std::size_t>(i)] == LayerKind::moe) {
      moe_.run(moe_layer++, layer, batch, residual_.data(), observer);
    } else {
      moe_.run_dense(layer, num_rows, residual_.data());
    }
    if (observer != nullptr) {
      observer->layer_done(i, num_rows, residual_.data());
    }
  }

  const float* const logits = compute_logits();
  clock_.lap(Lap::compute);
  return logits;
}

// The same in segments that the host only enqueues. What follows the experts of a layer goes with the beginning of the
// next one.
const float* Decoder::forward_listed(ListedDecode& listed, const RowBatch& batch, StepObserver* observer) {
  listed.begin_step(batch);
  const std::int64_t num_rows = listed.padded_rows();
  inputs_.bring(batch, num_rows);
  attention_->begin_step(batch);
  graphs_.begin_step(num_rows);
  float* const residual = residual_.data();
  std::int64_t moe_layer = 0;
  bool combines = false;  // results of the layer before are to be added
  for (std::int64_t i = 0; i < spec_->num_layers; ++i) {
    const DenseLayer& layer = replicated_.dense.layer(i);
    const bool is_moe = spec_->layers[static_cast<std::size_t>(i)] == LayerKind::moe;
    graphs_.segment([&] {
      if (i == 0) {
        embed(replicated_.dense.embed(), inputs_.token_ids(), num_rows, residual);
      }
      if (combines) {
        listed.combine(moe_layer - 1, residual);
      }
      attention_->run(i, layer, inputs_.rows(), residual);
      is_moe ? moe_.choose(listed, moe_layer, layer, inputs_.rows().positions, residual)
             : moe_.run_dense(layer, num_rows, residual);
    });
    if (is_moe) {
      listed.gather();
      graphs_.segment([&] { listed.serve(moe_layer); });
      listed.give_back();
      ++moe_layer;
    }
    combines = is_moe;
  }
  if (combines) {
    graphs_.segment([&] { listed.combine(moe_layer - 1, residual); });
  }
  const float* const logits = compute_logits();
  clock_.lap(Lap::compute);
  listed.end_step(batch, observer);
  graphs_.end_step();
  return logits;
}

const float* Decoder::logits_of(std::span<const std::int32_t> rows) {
  inputs_.bring_sampled(rows);
  const float* const logits = compute_logits();
  clock_.lap(Lap::compute);
  return logits;
}

// Of the sampled rows.
const float* Decoder::compute_logits() {
  const std::int64_t hidden = spec_->hidden_size;
  const std::int64_t num_sampled = inputs_.num_sampled();
  gather_rows(residual_.data(), inputs_.sampled_offsets(), num_sampled, hidden, sampled_.data());
  apply_norm(replicated_.dense.norm(), sampled_.data(), num_sampled, hidden, sampled_.data());
  linear(sampled_.data(), num_sampled, replicated_.dense.lm_head(), logits_.data());
  return logits_.data();
}

MemoryPlan Decoder::memory() const {
  MemoryPlan memory;
  memory.dense = replicated_.dense.num_bytes() + replicated_.rope.num_bytes();
  memory.experts = experts_.num_bytes();
  memory.kv = attention_->kv_bytes();
  memory.buffers = inputs_.num_bytes() + attention_->num_scratch_bytes() + moe_.num_bytes() + residual_.num_bytes() +
                   sampled_.num_bytes() + logits_.num_bytes() + (mover_ ? mover_->num_bytes() : 0);
  return memory;
}

std::vector<MemoryPlan> plan_memory_of_ranks(const WeightReader& checkpoint, const Placement& placement,
                                             const DecoderLimits& limits,
                                             std::span<const std::int64_t> sharers_of_rank) {
  METRO_REQUIRE(std::ssize(sharers_of_rank) == placement.num_ranks, "sharers of other ranks");
  const ModelSpec& spec = checkpoint.spec();
  constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t own_floats =
      limits.max_rows * spec.hidden_size + limits.max_sampled_rows * (spec.hidden_size + spec.vocab_size);
  // What is the same on all ranks is worked out once: it goes over all tensors of the model.
  const std::int64_t dense = DenseWeights::planned_bytes(checkpoint);
  const std::int64_t rope = RopeTable::planned_bytes(spec, limits.max_context);
  MemoryPlan plan;
  plan.kv = limits.kv_blocks * kv_bytes_per_block(spec, limits.block_tokens);
  plan.buffers = StepInputs::planned_bytes(limits) + planned_attention_bytes(spec, limits) +
                 MoeStep::planned_bytes(spec, placement, limits) + own_floats * float_bytes;
  if (limits.movable_experts) {
    plan.buffers += ExpertMover::planned_bytes(checkpoint, placement, limits.exchange_bytes);
  }
  std::vector<MemoryPlan> plans(sharers_of_rank.size(), plan);
  const std::vector<std::int64_t> experts = resident_expert_bytes(checkpoint, placement, limits.movable_experts);
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    plans[rank].dense = part_of_shared(dense, sharers_of_rank[rank]) + part_of_shared(rope, sharers_of_rank[rank]);
    plans[rank].experts = experts[rank];
  }
  return plans;
}

}  // namespace metro
