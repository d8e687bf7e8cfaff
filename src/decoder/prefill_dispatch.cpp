#include "decoder/prefill_dispatch.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "decoder/message_header.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace metro {

namespace {

// One assignment in the list that goes ahead of the rows.
struct SentAssignment {
  std::int32_t row;  // of the rows in the same message
  std::int32_t expert;
};
static_assert(sizeof(SentAssignment) == 8);

std::int64_t list_bytes(std::int64_t num_assignments) {
  return static_cast<std::int64_t>(sizeof(MessageHeader) + at(num_assignments) * sizeof(SentAssignment));
}

}  // namespace

PrefillDispatch::PrefillDispatch(const ModelSpec& spec, const std::vector<ReplicaMap>& maps,
                                 const RoutingSettings& routing, Digest placement_digest, RowExchange& rows,
                                 DeviceExchange& exchange, std::int64_t max_rows, std::int64_t max_round_rows,
                                 PhaseClock& clock)
    : spec_(&spec),
      maps_(&maps),
      rows_(&rows),
      transport_(&exchange.transport()),
      clock_(&clock),
      served_of_rank_(at(exchange.size())),
      round_served_of_rank_(at(exchange.size())),
      send_bytes_(at(exchange.size())),
      recv_bytes_(at(exchange.size())) {
  slots_.reserve(at(max_rows * spec.moe.top_k));
  served_.reserve(at(max_round_rows + exchange.size()));
  placement_digest_ = placement_digest;
  switch_routing(routing);
}

void PrefillDispatch::switch_routing(const RoutingSettings& routing) {
  policy_ = routing.prefill;
  options_ = routing.options(RowNumbering::own_rows);
  const bool needs_counts = needs_counts_of_all_ranks(policy_);
  own_counts_.resize(needs_counts ? at(spec_->moe.num_experts) : 0);
  counts_of_ranks_.resize(needs_counts ? at(transport_->size() * spec_->moe.num_experts) : 0);
  placement_changed(placement_digest_);
}

void PrefillDispatch::placement_changed(Digest placement_digest) {
  placement_digest_ = placement_digest;
  routers_.clear();
  routers_.reserve(maps_->size());
  for (const ReplicaMap& map : *maps_) {
    routers_.emplace_back(policy_, map, options_);
  }
}

void PrefillDispatch::run(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own, ExpertService& service,
                          std::span<std::int32_t> owned_to_rank) {
  if (needs_counts_of_all_ranks(policy_)) {
    gather_counts(own);
  }
  choose_ranks(moe_layer, batch, own, owned_to_rank);

  // Who serves how much: counts to their servers, then the number of rounds that suits the busiest.
  std::fill(send_bytes_.begin(), send_bytes_.end(), static_cast<std::int64_t>(sizeof(std::int64_t)));
  clock_->lap(Lap::routing);
  transport_->set_phase("prefill counts");
  transport_->all_to_all(std::as_bytes(rows_->owned_by_rank()), send_bytes_,
                         std::as_writable_bytes(std::span(served_of_rank_)), send_bytes_);
  std::int64_t most_served = std::accumulate(served_of_rank_.begin(), served_of_rank_.end(), std::int64_t{0});
  transport_->all_reduce_max({&most_served, 1});
  clock_->lap(Lap::dispatch);
  const std::int64_t num_rounds = service.num_rounds(most_served);

  const Digest digest = routing_digest(moe_layer, batch);
  service.begin(rows_->owned_by_rank(), num_rounds, ExpertArithmetic::any);
  for (std::int64_t round = 0; round < num_rounds; ++round) {
    send_lists(moe_layer, round, num_rounds, own, digest);
    const float* base = rows_->exchange(moe_layer, own.rows, round, num_rounds, digest);
    service.serve_round(moe_layer, round, served_, round_served_of_rank_, base, digest);
  }
}

// Equal digests mean that the ranks routed from the same state.
Digest PrefillDispatch::routing_digest(std::int64_t moe_layer, const RowBatch& batch) const {
  const std::array<std::uint64_t, 4> state{placement_digest_, static_cast<std::uint64_t>(batch.step),
                                           static_cast<std::uint64_t>(moe_layer),
                                           digest_of_values(std::span<const std::int32_t>(counts_of_ranks_))};
  return digest_of_values(std::span<const std::uint64_t>(state));
}

void PrefillDispatch::gather_counts(const OwnRows& own) {
  std::fill(own_counts_.begin(), own_counts_.end(), 0);
  for (const std::int32_t expert : own.host_ids()) {
    METRO_REQUIRE(expert >= 0 && expert < spec_->moe.num_experts, "expert id " + std::to_string(expert));
    ++own_counts_[at(expert)];
  }
  std::fill(recv_bytes_.begin(), recv_bytes_.end(),
            spec_->moe.num_experts * static_cast<std::int64_t>(sizeof(std::int32_t)));
  clock_->lap(Lap::routing);
  transport_->set_phase("prefill rows per expert");
  transport_->all_gather(std::as_bytes(std::span(own_counts_)), std::as_writable_bytes(std::span(counts_of_ranks_)),
                         recv_bytes_);
  clock_->lap(Lap::dispatch);
}

void PrefillDispatch::choose_ranks(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own,
                                   std::span<std::int32_t> owned_to_rank) {
  const ReplicaMap& map = (*maps_)[at(moe_layer)];
  const std::span<const std::int32_t> expert_ids = own.host_ids();
  const std::size_t num_owned = expert_ids.size();
  slots_.resize(num_owned);
  routers_[at(moe_layer)].route_own(expert_ids, spec_->moe.top_k, transport_->rank(), counts_of_ranks_, batch.step,
                                    moe_layer, slots_);
  for (std::size_t i = 0; i < num_owned; ++i) {
    METRO_REQUIRE(slots_[i] >= 0, "expert id " + std::to_string(expert_ids[i]));
    owned_to_rank[i] = map.rank_of_slot(slots_[i]);
  }
  rows_->group(owned_to_rank);
}

// Sends each server its list of (row of the message, expert) for the rows that follow, and reads those of the others.
void PrefillDispatch::send_lists(std::int64_t moe_layer, std::int64_t round, std::int64_t num_rounds,
                                 const OwnRows& own, Digest digest) {
  const std::span<const std::int32_t> expert_ids = own.host_ids();
  send_list_.clear();
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    const std::span<const std::int64_t> assignments = rows_->sent_to(rank, round, num_rounds);
    send_bytes_[at(rank)] = list_bytes(std::ssize(assignments));
    std::size_t end = send_list_.size();
    send_list_.resize(end + at(send_bytes_[at(rank)]));
    write_header({digest, std::ssize(assignments)}, send_list_.data() + end);
    end += sizeof(MessageHeader);
    RowNumbers numbers;
    for (const std::int64_t assignment : assignments) {
      const SentAssignment sent{static_cast<std::int32_t>(numbers.place_of(assignment / spec_->moe.top_k)),
                                expert_ids[at(assignment)]};
      std::memcpy(send_list_.data() + end, &sent, sizeof(sent));
      end += sizeof(sent);
    }
    round_served_of_rank_[at(rank)] = slice_size(served_of_rank_[at(rank)], round, num_rounds);
    recv_bytes_[at(rank)] = list_bytes(round_served_of_rank_[at(rank)]);
  }
  recv_list_.resize(at(std::accumulate(recv_bytes_.begin(), recv_bytes_.end(), std::int64_t{0})));
  clock_->lap(Lap::routing);
  transport_->set_phase("prefill lists");
  transport_->all_to_all(send_list_, send_bytes_, recv_list_, recv_bytes_);
  clock_->lap(Lap::dispatch);
  read_lists(moe_layer, digest);
}

// Into served_, and the rows to expect.
void PrefillDispatch::read_lists(std::int64_t moe_layer, Digest digest) {
  served_.clear();
  rows_->begin_round();
  const std::byte* message = recv_list_.data();
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    const std::int64_t num_assignments = round_served_of_rank_[at(rank)];
    require_header(message, {digest, num_assignments}, moe_layer, rank, *transport_);
    const std::int64_t first = rows_->next_offset();
    std::int64_t num_rows = 0;
    for (std::int64_t i = 0; i < num_assignments; ++i) {
      SentAssignment sent;
      std::memcpy(&sent, message + sizeof(MessageHeader) + at(i) * sizeof(sent), sizeof(sent));
      served_.push_back({first + sent.row * spec_->hidden_size, sent.expert});
      num_rows = sent.row + 1;
    }
    rows_->expect(num_rows);
    message += recv_bytes_[at(rank)];
  }
}

}  // namespace metro
