#include "decoder/moe_step.hpp"

#include "base/integers.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"

#include <algorithm>

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
                 DeviceExchange& exchange, const DecoderLimits& limits, PhaseClock& clock)
    : spec_(&spec),
      store_(&store),
      exchange_(&exchange),
      clock_(&clock),
      limits_(limits),
      placement_(placement),
      routing_(routing),
      maps_(maps_of(placement)),
      service_(spec, store, exchange, limits, clock),
      gate_(spec, DecodeDispatch::max_gate_rows(exchange.size(), limits)),
      rows_(spec, exchange, limits.max_rows, service_.max_round_rows(), clock),
      decode_(spec, maps_, routing, gate_, rows_, exchange, limits, clock),
      prefill_(spec, maps_, routing, placement.digest(), rows_, exchange, limits.max_rows, service_.max_round_rows(),
               clock),
      normed_("moe normed", limits.max_rows * spec.hidden_size),
      expert_ids_("expert ids of rows", limits.max_rows * spec.moe.top_k),
      weights_("expert weights of rows", limits.max_rows * spec.moe.top_k),
      owned_to_rank_(at(limits.max_rows * spec.moe.top_k)),
      result_offsets_("result offsets", limits.max_rows * spec.moe.top_k),
      combined_("moe output", limits.max_rows * spec.hidden_size),
      dense_hidden_("dense hidden", limits.max_rows * spec.dense_intermediate_size) {
  make_listed();
}

void MoeStep::make_listed() {
  listed_.reset();
  if (limits_.listed.most_rows == 0) {
    return;
  }
  const std::int64_t reach = ListedDecode::most_rows(*spec_, placement_, routing_, limits_).num_rows;
  if (const std::int64_t most_rows = std::min(reach, limits_.listed.most_rows); most_rows > 0) {
    listed_.emplace(*spec_, placement_, routing_, *store_, service_, gate_, *exchange_, *clock_, limits_, most_rows);
  }
}

void MoeStep::switch_placement(const Placement& placement) {
  placement_ = placement;
  make_listed();
  maps_ = maps_of(placement);
  decode_.placement_changed();
  prefill_.placement_changed(placement.digest());
}

void MoeStep::switch_routing(const RoutingSettings& routing) {
  routing_ = routing;
  make_listed();
  decode_.switch_routing(routing);
  prefill_.switch_routing(routing);
}

std::int64_t MoeStep::num_bytes() const {
  return service_.num_bytes() + gate_.num_bytes() + rows_.num_bytes() + decode_.num_bytes() + normed_.num_bytes() +
         weights_.num_bytes() + expert_ids_.num_bytes() + result_offsets_.num_bytes() + combined_.num_bytes() +
         dense_hidden_.num_bytes() + (listed_ ? listed_->num_bytes() : 0);
}

std::int64_t MoeStep::planned_bytes(const ModelSpec& spec, const Placement& placement, const DecoderLimits& limits) {
  const std::int64_t num_ranks = placement.num_ranks;
  const ExpertService::Sizes service = ExpertService::sizes(spec, num_ranks, limits);
  constexpr auto word = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t per_row = 2 * spec.hidden_size + spec.dense_intermediate_size +
                               4 * spec.moe.top_k;  // weights, ids, and offsets of two words
  return service.num_bytes() + Gate::planned_bytes(spec, DecodeDispatch::max_gate_rows(num_ranks, limits)) +
         RowExchange::planned_bytes(spec, num_ranks, limits.max_rows, service.round_rows) +
         DecodeDispatch::planned_bytes(spec, num_ranks, limits) + limits.max_rows * per_row * word +
         (limits.listed.most_rows > 0 ? ListedDecode::planned_bytes(spec, placement, limits.listed.most_rows) : 0);
}

void MoeStep::run(std::int64_t moe_layer, const DenseLayer& weights, const RowBatch& batch, float* residual,
                  StepObserver* observer) {
  const std::int64_t num_rows = batch.num_rows();
  const std::int64_t hidden = spec_->hidden_size;
  const MoeSpec& moe = spec_->moe;
  const std::int64_t num_owned = num_rows * moe.top_k;

  rms_norm(residual, num_rows, hidden, weights.mlp_norm, spec_->norm_eps, normed_.data());
  const OwnRows own{normed_.data(), num_owned, &expert_ids_, &weights_};
  if (batch.decode) {
    decode_.gather(batch, weights.router, own);
  } else {
    gate_.choose(own.rows, num_rows, weights.router, expert_ids_.kernels(), weights_.kernels());
    own.to_host();
    wait_for_kernels();
    clock_->lap(Lap::compute);
  }
  if (observer != nullptr) {
    observer->router_choices(moe_layer, num_rows, own.host_ids(), own.host_weights());
  }

  const std::span<std::int32_t> owned_to_rank = std::span(owned_to_rank_).first(at(num_owned));
  if (batch.decode) {
    decode_.run(moe_layer, batch, own, service_, owned_to_rank, observer);
  } else {
    prefill_.run(moe_layer, batch, own, service_, owned_to_rank);
  }

  // Unpacking counts as routing, the weighted sum as computing.
  service_.locate(owned_to_rank, result_offsets_.span().first(at(num_owned)));
  result_offsets_.to_kernels(num_owned);
  clock_->lap(Lap::routing);
  combine(service_.results(), result_offsets_.kernels(), weights_.kernels(), num_rows, moe.top_k, hidden,
          combined_.data());
  add(combined_.data(), num_rows * hidden, residual);
}

void MoeStep::choose(ListedDecode& listed, std::int64_t moe_layer, const DenseLayer& weights,
                     const std::int32_t* positions, const float* residual) {
  rms_norm(residual, listed.padded_rows(), spec_->hidden_size, weights.mlp_norm, spec_->norm_eps, normed_.data());
  listed.choose(moe_layer, normed_.data(), positions, weights.router);
}

void MoeStep::run_dense(const DenseLayer& weights, std::int64_t num_rows, float* residual) {
  if (num_rows == 0) {
    return;
  }
  rms_norm(residual, num_rows, spec_->hidden_size, weights.mlp_norm, spec_->norm_eps, normed_.data());
  const ExpertWork work{weights.mlp, 0, num_rows};
  expert_ffn({&work, 1}, normed_.data(), dense_hidden_.data(), combined_.data());
  add(combined_.data(), num_rows * spec_->hidden_size, residual);
}

}  // namespace metro
