#include "decoder/exchange_trial.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "routing/mixed_bits.hpp"

#include <algorithm>
#include <chrono>

namespace metro {

namespace {

// top_k distinct experts for every row, all sets equally likely. [num_rows * top_k]
std::vector<std::int32_t> random_choices(std::int64_t num_rows, const MoeSpec& moe, std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  ids.reserve(at(num_rows * moe.top_k));
  std::uint64_t draw = mixed_bits(seed);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto first = std::ssize(ids);
    while (std::ssize(ids) < first + moe.top_k) {
      draw = mixed_bits(draw);
      const auto id = static_cast<std::int32_t>(below(static_cast<std::uint64_t>(moe.num_experts), draw));
      if (std::find(ids.begin() + first, ids.end(), id) == ids.end()) {
        ids.push_back(id);
      }
    }
  }
  return ids;
}

}  // namespace

ExchangeTrial::ExchangeTrial(const ModelSpec& spec, const Placement& placement, const RoutingSettings& routing,
                             DeviceExchange& exchange, std::int64_t max_rows)
    : spec_(&spec),
      exchange_(&exchange),
      maps_{ReplicaMap(placement.layer(0), placement.num_experts, placement.num_ranks)},
      routing_(spec, maps_, routing, exchange.rank(), exchange.size(), max_rows),
      // One round: a rank receives at most all rows.
      rows_(spec, exchange, max_rows, exchange.size() * max_rows, clock_),
      allgather_(spec, AllgatherExchange::Content::rows_and_ids, exchange, max_rows, exchange.size() * max_rows,
                 clock_),
      ids_(spec, rows_, exchange, max_rows, clock_),
      own_rows_("rows of an exchange trial", max_rows * spec.hidden_size),
      own_ids_("ids of an exchange trial", max_rows * spec.moe.top_k),
      own_weights_("weights of an exchange trial", max_rows * spec.moe.top_k) {
  METRO_REQUIRE(spec.moe.top_k <= spec.moe.num_experts, "more choices than experts");
  served_.reserve(at(exchange.size() * max_rows * spec.moe.top_k));
}

void ExchangeTrial::set_rows(std::int64_t rows_per_rank, std::uint64_t seed) {
  const std::int64_t num_own = rows_per_rank * spec_->moe.top_k;
  batch_.rows_of_rank.assign(at(exchange_->size()), rows_per_rank);
  batch_.token_ids.assign(at(rows_per_rank), 0);
  ids_of_all_ = random_choices(exchange_->size() * rows_per_rank, spec_->moe, seed);
  wait_for_kernels();
  std::copy_n(ids_of_all_.begin() + exchange_->rank() * num_own, num_own, own_ids_.host());
  own_ids_.to_kernels(num_own);
  exchanged_.resize(ids_of_all_.size());
  const std::span<std::int32_t> ids = routing_.expert_ids(batch_);
  std::copy(ids_of_all_.begin(), ids_of_all_.end(), ids.begin());
  routing_.route(0, batch_);
}

std::int64_t ExchangeTrial::run(ExchangeMode mode) {
  DecodeExchange& exchange = mode == ExchangeMode::allgather ? static_cast<DecodeExchange&>(allgather_) : ids_;
  const OwnRows own{own_rows_.data(), batch_.num_rows() * spec_->moe.top_k, &own_ids_, &own_weights_};
  const Digest digest = routing_.digest();
  std::fill(exchanged_.begin(), exchanged_.end(), -1);
  Transport& transport = exchange_->transport();
  transport.set_phase("exchange trial");
  wait_for_kernels();
  transport.barrier();
  const std::int64_t sent_before = transport.bytes_sent();
  const Clock::time_point begin = Clock::now();
  exchange.gather(batch_, own, exchanged_);
  exchange.bring({routing_, 0, 0, 1, digest}, own, served_);
  wait_for_kernels();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  bytes_sent_ = transport.bytes_sent() - sent_before;
  METRO_REQUIRE(exchanged_ == ids_of_all_, "an exchange changed the ids");
  return ns;
}

}  // namespace metro
