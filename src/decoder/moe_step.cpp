#include "decoder/moe_step.hpp"

#include "kernels/linear.hpp"
#include "kernels/norm.hpp"

namespace metro {

namespace {

std::vector<ReplicaMap> maps_of(const Placement& placement) {
  std::vector<ReplicaMap> maps;
  maps.reserve(static_cast<std::size_t>(placement.num_layers));
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    maps.emplace_back(placement.layer(layer), placement.num_experts, placement.num_ranks);
  }
  return maps;
}

}  // namespace

MoeStep::MoeStep(const ModelSpec& spec, const Placement& placement, const RoutingSettings& routing, ExpertStore& store,
                 Transport& transport, const DecoderLimits& limits, PhaseClock& clock)
    : spec_(&spec),
      clock_(&clock),
      maps_(maps_of(placement)),
      service_(spec, store, transport, limits, clock),
      gate_(spec, DecodeDispatch::max_gate_rows(transport.size(), limits)),
      rows_(spec, transport, limits.max_rows, service_.max_round_rows(), clock),
      decode_(spec, maps_, routing, gate_, rows_, transport, limits, clock),
      prefill_(spec, maps_, routing, placement.digest(), rows_, transport, limits.max_rows, service_.max_round_rows(),
               clock),
      normed_("moe normed", limits.max_rows * spec.hidden_size),
      weights_("expert weights of rows", limits.max_rows * spec.moe.top_k),
      expert_ids_("expert ids of rows", limits.max_rows * spec.moe.top_k),
      owned_to_rank_("serving ranks of rows", limits.max_rows * spec.moe.top_k),
      result_offsets_("result offsets", limits.max_rows * spec.moe.top_k),
      combined_("moe output", limits.max_rows * spec.hidden_size),
      dense_hidden_("dense hidden", limits.max_rows * spec.dense_intermediate_size) {}

void MoeStep::switch_placement(const Placement& placement) {
  maps_ = maps_of(placement);
  decode_.placement_changed();
  prefill_.placement_changed(placement.digest());
}

void MoeStep::switch_routing(const RoutingSettings& routing) {
  decode_.switch_routing(routing);
  prefill_.switch_routing(routing);
}

std::int64_t MoeStep::num_bytes() const {
  return service_.num_bytes() + gate_.num_bytes() + rows_.num_bytes() + decode_.num_bytes() + normed_.num_bytes() +
         weights_.num_bytes() + expert_ids_.num_bytes() + owned_to_rank_.num_bytes() + result_offsets_.num_bytes() +
         combined_.num_bytes() + dense_hidden_.num_bytes();
}

std::int64_t MoeStep::planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, const DecoderLimits& limits) {
  const ExpertService::Sizes service = ExpertService::sizes(spec, num_ranks, limits);
  constexpr auto word = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t per_row = 2 * spec.hidden_size + spec.dense_intermediate_size +
                               5 * spec.moe.top_k;  // weights, ids, serving ranks, and offsets of two words
  return service.num_bytes() + Gate::planned_bytes(spec, DecodeDispatch::max_gate_rows(num_ranks, limits)) +
         RowExchange::planned_bytes(spec, num_ranks, limits.max_rows, service.round_rows) +
         DecodeDispatch::planned_bytes(spec, num_ranks, limits) + limits.max_rows * per_row * word;
}

void MoeStep::run(std::int64_t moe_layer, const DenseLayer& weights, const RowBatch& batch, float* residual,
                  StepObserver* observer) {
  const std::int64_t num_rows = batch.num_rows();
  const std::int64_t hidden = spec_->hidden_size;
  const MoeSpec& moe = spec_->moe;
  const auto num_owned = static_cast<std::size_t>(num_rows * moe.top_k);

  rms_norm(residual, num_rows, hidden, weights.mlp_norm.data(), spec_->norm_eps, normed_.data());
  const OwnRows own{normed_.data(), expert_ids_.span().first(num_owned), weights_.span().first(num_owned)};
  if (batch.decode) {
    decode_.gather(batch, weights.gate, own);
  } else {
    gate_.choose(own.rows, num_rows, weights.gate, own.expert_ids.data(), own.expert_weights.data());
    clock_->lap(Lap::compute);
  }
  if (observer != nullptr) {
    observer->router_choices(moe_layer, num_rows, own.expert_ids, own.expert_weights);
  }

  const std::span<std::int32_t> owned_to_rank = owned_to_rank_.span().first(num_owned);
  if (batch.decode) {
    decode_.run(moe_layer, batch, own, service_, owned_to_rank, observer);
  } else {
    prefill_.run(moe_layer, batch, own, service_, owned_to_rank);
  }

  // Unpacking counts as routing, the weighted sum as computing.
  service_.locate(owned_to_rank, result_offsets_.span().first(num_owned));
  clock_->lap(Lap::routing);
  combine(service_.results(), result_offsets_.data(), weights_.data(), num_rows, moe.top_k, hidden, combined_.data());
  add(combined_.data(), num_rows * hidden, residual);
}

void MoeStep::run_dense(const DenseLayer& weights, std::int64_t num_rows, float* residual) {
  if (num_rows == 0) {
    return;
  }
  rms_norm(residual, num_rows, spec_->hidden_size, weights.mlp_norm.data(), spec_->norm_eps, normed_.data());
  const ExpertWork work{weights.mlp, 0, num_rows};
  expert_ffn({&work, 1}, normed_.data(), dense_hidden_.data(), combined_.data());
  add(combined_.data(), num_rows * spec_->hidden_size, residual);
}

}  // namespace metro
