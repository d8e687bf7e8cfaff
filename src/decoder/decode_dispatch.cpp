#include "decoder/decode_dispatch.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace metro {

DecodeDispatch::DecodeDispatch(const ModelSpec& spec, const std::vector<ReplicaMap>& maps,
                               const RoutingSettings& routing, Transport& transport, std::int64_t max_rows,
                               PhaseClock& clock)
    : spec_(&spec),
      maps_(&maps),
      policy_(routing.decode),
      options_(routing.options(RowNumbering::all_rows)),
      transport_(&transport),
      clock_(&clock),
      record_floats_(spec.hidden_size + spec.moe.top_k),
      send_("decode rows to gather", max_rows * record_floats_),
      gathered_("decode rows gathered", transport.size() * max_rows * record_floats_),
      recv_bytes_(at(transport.size())),
      counts_(at(spec.moe.num_experts)),
      activated_(at(transport.size())),
      served_by_rank_(at(transport.size())),
      served_of_rank_(at(transport.size())),
      owned_by_rank_(at(transport.size())),
      round_of_rank_(at(transport.size())) {
  const std::int64_t num_assignments = transport.size() * max_rows * spec.moe.top_k;
  expert_ids_.reserve(at(num_assignments));
  assignment_to_rank_.reserve(at(num_assignments));
  slots_.reserve(at(num_assignments));
  served_.reserve(at(num_assignments));
  round_served_.reserve(at(num_assignments));
  row_to_rank_.reserve(at(transport.size() * max_rows));
  placement_changed();
}

void DecodeDispatch::placement_changed() {
  routers_.clear();
  routers_.reserve(maps_->size());
  for (const ReplicaMap& map : *maps_) {
    routers_.emplace_back(policy_, map, options_);
  }
}

std::int64_t DecodeDispatch::planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows) {
  return (1 + num_ranks) * max_rows * (spec.hidden_size + spec.moe.top_k) * static_cast<std::int64_t>(sizeof(float));
}

void DecodeDispatch::run(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own, ExpertService& service,
                         std::span<std::int32_t> owned_to_rank, StepObserver* observer) {
  gather(batch, own);
  route(moe_layer, batch);
  if (observer != nullptr) {
    observe(moe_layer, *observer);
  }
  share_out(batch, owned_to_rank);

  const std::int64_t num_rounds = service.num_rounds(*std::max_element(served_by_rank_.begin(), served_by_rank_.end()));
  const Digest digest = routing_digest();
  service.begin(owned_by_rank_, num_rounds);
  if (num_rounds == 1) {
    service.serve_round(moe_layer, 0, served_, served_of_rank_, gathered_.data(), digest);
    return;
  }
  for (std::int64_t round = 0; round < num_rounds; ++round) {
    round_served_.clear();
    std::int64_t first = 0;
    for (std::int64_t owner = 0; owner < transport_->size(); ++owner) {
      const std::int64_t count = served_of_rank_[at(owner)];
      const auto begin = served_.begin() + first + slice_begin(count, round, num_rounds);
      round_of_rank_[at(owner)] = slice_size(count, round, num_rounds);
      round_served_.insert(round_served_.end(), begin, begin + round_of_rank_[at(owner)]);
      first += count;
    }
    service.serve_round(moe_layer, round, round_served_, round_of_rank_, gathered_.data(), digest);
  }
}

// Everyone knows every assignment: what each rank serves, what this rank serves of each owner, what it owns.
void DecodeDispatch::share_out(const RowBatch& batch, std::span<std::int32_t> owned_to_rank) {
  const std::int64_t top_k = spec_->moe.top_k;
  const std::int64_t rank = transport_->rank();
  std::fill(served_by_rank_.begin(), served_by_rank_.end(), 0);
  std::fill(served_of_rank_.begin(), served_of_rank_.end(), 0);
  std::fill(owned_by_rank_.begin(), owned_by_rank_.end(), 0);
  served_.clear();
  std::int64_t assignment = 0;
  for (std::int64_t owner = 0; owner < transport_->size(); ++owner) {
    const std::int64_t end = assignment + batch.rows_of_rank[at(owner)] * top_k;
    if (owner == rank) {
      std::copy(assignment_to_rank_.begin() + assignment, assignment_to_rank_.begin() + end, owned_to_rank.begin());
    }
    for (; assignment < end; ++assignment) {
      const std::int32_t server = assignment_to_rank_[at(assignment)];
      ++served_by_rank_[at(server)];
      if (owner == rank) {
        ++owned_by_rank_[at(server)];
      }
      if (server == rank) {
        ++served_of_rank_[at(owner)];
        served_.push_back({assignment / top_k * record_floats_, expert_ids_[at(assignment)]});
      }
    }
  }
}

void DecodeDispatch::gather(const RowBatch& batch, const OwnRows& own) {
  const std::int64_t top_k = spec_->moe.top_k;
  const std::int64_t hidden = spec_->hidden_size;
  const std::int64_t num_rows = batch.num_rows();
  METRO_REQUIRE(num_rows * record_floats_ <= send_.size(), "more decode rows than the buffer holds");
  const auto ids_bytes = at(top_k) * sizeof(std::int32_t);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    float* record = send_.data() + row * record_floats_;
    std::memcpy(record, own.rows + row * hidden, at(hidden) * sizeof(float));
    std::memcpy(record + hidden, own.expert_ids.data() + row * top_k, ids_bytes);
  }
  std::int64_t total_rows = 0;
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    total_rows += batch.rows_of_rank[at(rank)];
    recv_bytes_[at(rank)] = batch.rows_of_rank[at(rank)] * record_floats_ * static_cast<std::int64_t>(sizeof(float));
  }
  METRO_REQUIRE(total_rows * record_floats_ <= gathered_.size(), "more decode rows of all ranks than the buffer holds");
  clock_->lap(Lap::routing);
  transport_->set_phase("dispatch");
  transport_->all_gather(std::as_bytes(send_.span().first(at(num_rows * record_floats_))),
                         std::as_writable_bytes(gathered_.span().first(at(total_rows * record_floats_))), recv_bytes_);
  clock_->lap(Lap::dispatch);
  expert_ids_.resize(at(total_rows * top_k));
  for (std::int64_t row = 0; row < total_rows; ++row) {
    std::memcpy(expert_ids_.data() + row * top_k, gathered_.data() + row * record_floats_ + hidden, ids_bytes);
  }
  for (const std::int32_t expert : expert_ids_) {
    METRO_REQUIRE(expert >= 0 && expert < spec_->moe.num_experts, "expert id " + std::to_string(expert));
  }
}

void DecodeDispatch::route(std::int64_t moe_layer, const RowBatch& batch) {
  row_to_rank_.clear();
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    row_to_rank_.insert(row_to_rank_.end(), at(batch.rows_of_rank[at(rank)]), static_cast<std::int32_t>(rank));
  }
  slots_.resize(expert_ids_.size());
  routers_[at(moe_layer)].route(expert_ids_, spec_->moe.top_k, row_to_rank_, batch.step, moe_layer, slots_);
  const ReplicaMap& map = (*maps_)[at(moe_layer)];
  assignment_to_rank_.resize(slots_.size());
  std::transform(slots_.begin(), slots_.end(), assignment_to_rank_.begin(),
                 [&map](std::int32_t slot) { return map.rank_of_slot(slot); });
}

Digest DecodeDispatch::routing_digest() const {
  // The ids and where they went: equal digests mean equal routing.
  const std::array<Digest, 2> parts{digest_of_values(std::span<const std::int32_t>(expert_ids_)),
                                    digest_of_values(std::span<const std::int32_t>(assignment_to_rank_))};
  return digest_of_values(std::span<const Digest>(parts));
}

void DecodeDispatch::observe(std::int64_t moe_layer, StepObserver& observer) {
  std::fill(counts_.begin(), counts_.end(), 0);
  for (const std::int32_t expert : expert_ids_) {
    ++counts_[at(expert)];
  }
  if (needs_counts_of_all_ranks(policy_)) {  // one slot of an expert per rank
    observer.routed(moe_layer, counts_, routers_[at(moe_layer)].activated());
    return;
  }
  // Several slots of an expert on one rank are read once: distinct pairs of expert and rank count.
  const std::int64_t num_experts = spec_->moe.num_experts;
  std::vector<bool> seen(at(transport_->size() * num_experts), false);
  std::fill(activated_.begin(), activated_.end(), 0);
  for (std::size_t i = 0; i < expert_ids_.size(); ++i) {
    const std::int32_t expert = expert_ids_[i];
    const std::int32_t rank = assignment_to_rank_[i];
    if (!seen[at(rank * num_experts + expert)]) {
      seen[at(rank * num_experts + expert)] = true;
      ++activated_[at(rank)];
    }
  }
  observer.routed(moe_layer, counts_, activated_);
}

}  // namespace metro
