#include "decoder/decode_dispatch.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <algorithm>
#include <numeric>

namespace metro {

namespace {

AllgatherExchange::Content content_of(const ExchangeSettings& settings) {
  return settings.gathered_gate ? AllgatherExchange::Content::rows : AllgatherExchange::Content::rows_and_ids;
}

// Of all ranks, in a step that is gathered.
std::int64_t most_gathered_rows(std::int64_t num_ranks, const DecoderLimits& limits) {
  return std::min(num_ranks * limits.max_decode_rows, limits.exchange.most_gathered_rows);
}

// Of all ranks, with a gathered gate.
std::int64_t gathered_choices(const ModelSpec& spec, std::int64_t num_ranks, const DecoderLimits& limits) {
  return limits.exchange.gathered_gate ? num_ranks * limits.max_decode_rows * spec.moe.top_k : 0;
}

}  // namespace

DecodeDispatch::DecodeDispatch(const ModelSpec& spec, const std::vector<ReplicaMap>& maps,
                               const RoutingSettings& routing, Gate& gate, RowExchange& rows, DeviceExchange& exchange,
                               const DecoderLimits& limits, PhaseClock& clock)
    : spec_(&spec),
      settings_(limits.exchange),
      gate_(&gate),
      exchange_(&exchange),
      clock_(&clock),
      routing_(spec, maps, routing, exchange.rank(), exchange.size(), limits.max_decode_rows),
      ids_of_all_("expert ids of all rows", gathered_choices(spec, exchange.size(), limits)),
      weights_of_all_("expert weights of all rows", gathered_choices(spec, exchange.size(), limits)),
      round_of_rank_(at(exchange.size())) {
  METRO_REQUIRE(settings_.mode != ExchangeMode::automatic ||
                    std::min(settings_.most_allgather_rows, exchange.size() * limits.max_decode_rows) <=
                        settings_.most_gathered_rows,
                "more rows are to be gathered than there is room for");
  METRO_REQUIRE(!settings_.gathered_gate || !settings_.may_send_ids(), "a gathered gate needs all rows on all ranks");
  if (settings_.may_allgather()) {
    allgather_.emplace(spec, content_of(settings_), exchange, limits.max_decode_rows,
                       most_gathered_rows(exchange.size(), limits), clock);
  }
  if (settings_.may_send_ids()) {
    ids_.emplace(spec, rows, exchange, limits.max_decode_rows, clock);
  }
  served_.reserve(at(exchange.size() * limits.max_decode_rows * spec.moe.top_k));
}

std::int64_t DecodeDispatch::num_bytes() const {
  return (allgather_ ? allgather_->num_bytes() : 0) + (ids_ ? ids_->num_bytes() : 0) + ids_of_all_.num_bytes() +
         weights_of_all_.num_bytes();
}

std::int64_t DecodeDispatch::planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, const DecoderLimits& limits) {
  const ExchangeSettings& settings = limits.exchange;
  std::int64_t bytes =
      gathered_choices(spec, num_ranks, limits) * static_cast<std::int64_t>(sizeof(std::int32_t) + sizeof(float));
  if (settings.may_allgather()) {
    bytes += AllgatherExchange::planned_bytes(spec, content_of(settings), limits.max_decode_rows,
                                              most_gathered_rows(num_ranks, limits));
  }
  if (settings.may_send_ids()) {
    bytes += IdsExchange::planned_bytes(spec, num_ranks, limits.max_decode_rows);
  }
  return bytes;
}

std::int64_t DecodeDispatch::max_gate_rows(std::int64_t num_ranks, const DecoderLimits& limits) {
  const std::int64_t gathered = limits.exchange.gathered_gate ? num_ranks * limits.max_decode_rows : 0;
  return std::max(limits.max_rows, gathered);
}

// Every rank knows the rows of all, so all make the same choice.
DecodeExchange& DecodeDispatch::exchange_of(const RowBatch& batch) {
  const bool few_rows = batch.num_rows_of_all() <= settings_.most_allgather_rows;
  if (allgather_ && (few_rows || !ids_)) {
    return *allgather_;
  }
  return *ids_;
}

void DecodeDispatch::gather(const RowBatch& batch, const RouterWeights& router, const OwnRows& own) {
  if (settings_.gathered_gate) {
    gather_before_gate(batch, router, own);
    return;
  }
  gate_->choose(own.rows, batch.num_rows(), router, own.expert_ids->kernels(), own.expert_weights->kernels());
  own.to_host();
  clock_->lap(Lap::compute);
  exchange_of(batch).gather(batch, own, routing_.expert_ids(batch));
}

// As the METRO paper does: every rank runs the gate on the rows of all ranks and takes its own weights from there.
void DecodeDispatch::gather_before_gate(const RowBatch& batch, const RouterWeights& router, const OwnRows& own) {
  const std::span<std::int32_t> expert_ids = routing_.expert_ids(batch);
  clock_->lap(Lap::compute);
  allgather_->gather(batch, own, expert_ids);
  gate_->choose(allgather_->rows_of_all(), batch.num_rows_of_all(), router, ids_of_all_.kernels(),
                weights_of_all_.data());
  const auto rows_of_rank = batch.rows_of_rank.begin();
  const std::int64_t first =
      std::accumulate(rows_of_rank, rows_of_rank + exchange_->rank(), std::int64_t{0}) * spec_->moe.top_k;
  queue_copy(own.expert_ids->kernels(), ids_of_all_.kernels() + first,
             own.num_assignments * static_cast<std::int64_t>(sizeof(std::int32_t)));
  queue_copy(own.expert_weights->kernels(), weights_of_all_.data() + first,
             own.num_assignments * static_cast<std::int64_t>(sizeof(float)));
  own.to_host();
  ids_of_all_.to_host(std::ssize(expert_ids));
  wait_for_kernels();
  std::copy_n(ids_of_all_.host(), expert_ids.size(), expert_ids.begin());
  clock_->lap(Lap::compute);
}

void DecodeDispatch::run(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own, ExpertService& service,
                         std::span<std::int32_t> owned_to_rank, StepObserver* observer) {
  routing_.route(moe_layer, batch);
  if (observer != nullptr) {
    routing_.observe(moe_layer, *observer);
  }
  std::copy(routing_.owned_to_rank().begin(), routing_.owned_to_rank().end(), owned_to_rank.begin());

  DecodeExchange& exchange = exchange_of(batch);
  const std::int64_t num_rounds = service.num_rounds(routing_.most_served());
  const Digest digest = routing_.digest();
  service.begin(routing_.owned_by_rank(), num_rounds, ExpertArithmetic::reproducible);
  for (std::int64_t round = 0; round < num_rounds; ++round) {
    const float* base = exchange.bring({routing_, moe_layer, round, num_rounds, digest}, own, served_);
    for (std::int64_t owner = 0; owner < exchange_->size(); ++owner) {
      round_of_rank_[at(owner)] = slice_size(routing_.served_of_rank()[at(owner)], round, num_rounds);
    }
    service.serve_round(moe_layer, round, served_, round_of_rank_, base, digest);
  }
}

}  // namespace metro
