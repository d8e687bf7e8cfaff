#include "decoder/prefill_dispatch.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace metro {

PrefillDispatch::PrefillDispatch(const ModelSpec& spec, const std::vector<ReplicaMap>& maps,
                                 const RoutingSettings& routing, Digest placement_digest, Transport& transport,
                                 std::int64_t max_rows, std::int64_t max_round_rows, PhaseClock& clock)
    : spec_(&spec),
      maps_(&maps),
      policy_(routing.prefill),
      options_(routing.options(RowNumbering::own_rows)),
      transport_(&transport),
      clock_(&clock),
      // A row goes to at most top_k ranks, and is received once per rank and round.
      send_rows_("prefill rows to send", max_rows * std::min(spec.moe.top_k, transport.size()) * spec.hidden_size),
      recv_rows_("prefill rows received", (max_round_rows + transport.size()) * spec.hidden_size),
      owned_by_rank_(at(transport.size())),
      served_of_rank_(at(transport.size())),
      round_served_of_rank_(at(transport.size())),
      send_bytes_(at(transport.size())),
      recv_bytes_(at(transport.size())),
      rows_to_rank_(at(transport.size())),
      rows_from_rank_(at(transport.size())) {
  placement_changed(placement_digest);
  if (needs_counts_of_all_ranks(policy_)) {
    own_counts_.resize(at(spec.moe.num_experts));
    counts_of_ranks_.resize(at(transport.size() * spec.moe.num_experts));
  }
  slots_.reserve(at(max_rows * spec.moe.top_k));
  owned_.reserve(at(max_rows * spec.moe.top_k));
  served_.reserve(at(max_round_rows + transport.size()));
}

void PrefillDispatch::placement_changed(Digest placement_digest) {
  placement_digest_ = placement_digest;
  routers_.clear();
  routers_.reserve(maps_->size());
  for (const ReplicaMap& map : *maps_) {
    routers_.emplace_back(policy_, map, options_);
  }
}

std::int64_t PrefillDispatch::planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows,
                                            std::int64_t max_round_rows) {
  return (max_rows * std::min(spec.moe.top_k, num_ranks) + max_round_rows + num_ranks) * spec.hidden_size *
         static_cast<std::int64_t>(sizeof(float));
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
  transport_->all_to_all(std::as_bytes(std::span(owned_by_rank_)), send_bytes_,
                         std::as_writable_bytes(std::span(served_of_rank_)), send_bytes_);
  std::int64_t most_served = std::accumulate(served_of_rank_.begin(), served_of_rank_.end(), std::int64_t{0});
  transport_->all_reduce_max({&most_served, 1});
  clock_->lap(Lap::dispatch);
  const std::int64_t num_rounds = service.num_rounds(most_served);

  const Digest digest = routing_digest(moe_layer, batch);
  service.begin(owned_by_rank_, num_rounds);
  for (std::int64_t round = 0; round < num_rounds; ++round) {
    send_lists(moe_layer, round, num_rounds, own, digest);
    send_rows();
    service.serve_round(moe_layer, round, served_, round_served_of_rank_, recv_rows_.data(), digest);
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
  for (const std::int32_t expert : own.expert_ids) {
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
  const std::size_t num_owned = own.expert_ids.size();
  slots_.resize(num_owned);
  routers_[at(moe_layer)].route_own(own.expert_ids, spec_->moe.top_k, transport_->rank(), counts_of_ranks_, batch.step,
                                    moe_layer, slots_);
  std::fill(owned_by_rank_.begin(), owned_by_rank_.end(), 0);
  for (std::size_t i = 0; i < num_owned; ++i) {
    METRO_REQUIRE(slots_[i] >= 0, "expert id " + std::to_string(own.expert_ids[i]));
    owned_to_rank[i] = map.rank_of_slot(slots_[i]);
    ++owned_by_rank_[at(owned_to_rank[i])];
  }
  owned_begin_.assign(1, 0);
  for (const std::int64_t count : owned_by_rank_) {
    owned_begin_.push_back(owned_begin_.back() + count);
  }
  owned_.resize(num_owned);
  owned_next_.assign(owned_begin_.begin(), owned_begin_.end() - 1);
  for (std::size_t i = 0; i < num_owned; ++i) {
    owned_[at(owned_next_[at(owned_to_rank[i])]++)] = static_cast<std::int64_t>(i);
  }
}

// Sends each server its list of (row of the message, expert) and copies the rows, each once, behind one another for
// send_rows(). Reads the lists of the others into served_, whose row offsets count from recv_rows_.
void PrefillDispatch::send_lists(std::int64_t moe_layer, std::int64_t round, std::int64_t num_rounds,
                                 const OwnRows& own, Digest digest) {
  const std::int64_t hidden = spec_->hidden_size;
  const std::int64_t num_ranks = transport_->size();
  send_list_.clear();
  std::int64_t num_sent_rows = 0;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    const std::int64_t count = owned_by_rank_[at(rank)];
    const std::int64_t first = owned_begin_[at(rank)] + slice_begin(count, round, num_rounds);
    ListHeader header{digest, slice_size(count, round, num_rounds), 0};
    const std::size_t message = send_list_.size();
    send_list_.resize(message + sizeof(header) + at(header.num_assignments) * sizeof(SentAssignment));
    std::int64_t last_row = -1;
    for (std::int64_t i = 0; i < header.num_assignments; ++i) {
      const std::int64_t assignment = owned_[at(first + i)];
      const std::int64_t row = assignment / spec_->moe.top_k;
      if (row != last_row) {
        std::memcpy(send_rows_.data() + num_sent_rows * hidden, own.rows + row * hidden, at(hidden) * sizeof(float));
        ++num_sent_rows;
        ++header.num_rows;
        last_row = row;
      }
      const SentAssignment sent{static_cast<std::int32_t>(header.num_rows - 1), own.expert_ids[at(assignment)]};
      std::memcpy(send_list_.data() + message + sizeof(header) + at(i) * sizeof(sent), &sent, sizeof(sent));
    }
    std::memcpy(send_list_.data() + message, &header, sizeof(header));
    send_bytes_[at(rank)] = static_cast<std::int64_t>(send_list_.size() - message);
    rows_to_rank_[at(rank)] = header.num_rows;
    round_served_of_rank_[at(rank)] = slice_size(served_of_rank_[at(rank)], round, num_rounds);
    recv_bytes_[at(rank)] =
        static_cast<std::int64_t>(sizeof(ListHeader) + at(round_served_of_rank_[at(rank)]) * sizeof(SentAssignment));
  }
  recv_list_.resize(at(std::accumulate(recv_bytes_.begin(), recv_bytes_.end(), std::int64_t{0})));
  clock_->lap(Lap::routing);
  transport_->set_phase("prefill lists");
  transport_->all_to_all(send_list_, send_bytes_, recv_list_, recv_bytes_);
  clock_->lap(Lap::dispatch);

  served_.clear();
  std::int64_t first_row = 0;
  const std::byte* message = recv_list_.data();
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    ListHeader header;
    std::memcpy(&header, message, sizeof(header));
    if (header.digest != digest || header.num_assignments != round_served_of_rank_[at(rank)]) {
      throw Error(
          ExitCode::internal,
          fmt::format("ranks {} and {} disagree about MoE layer {} in prefill: digest {} and {}, {} and {} rows",
                      transport_->rank(), rank, moe_layer, to_hex(digest), to_hex(header.digest),
                      round_served_of_rank_[at(rank)], header.num_assignments));
    }
    for (std::int64_t i = 0; i < header.num_assignments; ++i) {
      SentAssignment sent;
      std::memcpy(&sent, message + sizeof(header) + at(i) * sizeof(sent), sizeof(sent));
      served_.push_back({(first_row + sent.row) * hidden, sent.expert});
    }
    first_row += header.num_rows;
    rows_from_rank_[at(rank)] = header.num_rows;
    message += recv_bytes_[at(rank)];
  }
  METRO_REQUIRE(first_row * hidden <= recv_rows_.size(), "more prefill rows than the buffer holds");
}

void PrefillDispatch::send_rows() {
  const std::int64_t row_bytes = spec_->hidden_size * static_cast<std::int64_t>(sizeof(float));
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (std::size_t rank = 0; rank < send_bytes_.size(); ++rank) {
    send_bytes_[rank] = rows_to_rank_[rank] * row_bytes;
    recv_bytes_[rank] = rows_from_rank_[rank] * row_bytes;
    sent += send_bytes_[rank];
    received += recv_bytes_[rank];
  }
  clock_->lap(Lap::routing);
  transport_->set_phase("dispatch");
  transport_->all_to_all(std::as_bytes(send_rows_.span()).first(at(sent)), send_bytes_,
                         std::as_writable_bytes(recv_rows_.span()).first(at(received)), recv_bytes_);
  clock_->lap(Lap::dispatch);
}

}  // namespace metro
