#include "decoder/decode_routing.hpp"

#include "base/error.hpp"
#include "base/held_bytes.hpp"
#include "base/integers.hpp"
#include "decoder/expert_service.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

namespace metro {

DecodeRouting::DecodeRouting(const ModelSpec& spec, const std::vector<ReplicaMap>& maps, const RoutingSettings& routing,
                             std::int64_t rank, std::int64_t num_ranks, std::int64_t max_rows)
    : num_experts_(spec.moe.num_experts),
      top_k_(spec.moe.top_k),
      maps_(&maps),
      rank_(rank),
      served_by_rank_(at(num_ranks)),
      served_of_rank_(at(num_ranks)),
      served_begin_(at(num_ranks)),
      owned_by_rank_(at(num_ranks)),
      counts_(at(spec.moe.num_experts)),
      activated_(at(num_ranks)) {
  const std::int64_t num_assignments = num_ranks * max_rows * top_k_;
  expert_ids_.reserve(at(num_assignments));
  slots_.reserve(at(num_assignments));
  assignment_to_rank_.reserve(at(num_assignments));
  served_.reserve(at(num_assignments));
  row_to_rank_.reserve(at(num_ranks * max_rows));
  switch_routing(routing);
}

void DecodeRouting::switch_routing(const RoutingSettings& routing) {
  policy_ = routing.decode;
  options_ = routing.options(RowNumbering::all_rows);
  placement_changed();
}

void DecodeRouting::placement_changed() {
  routers_.clear();
  routers_.reserve(maps_->size());
  for (const ReplicaMap& map : *maps_) {
    routers_.emplace_back(policy_, map, options_);
  }
}

std::span<std::int32_t> DecodeRouting::expert_ids(const RowBatch& batch) {
  const std::int64_t total_rows = batch.num_rows_of_all();
  expert_ids_.resize(at(total_rows * top_k_));
  return expert_ids_;
}

void DecodeRouting::route(std::int64_t moe_layer, const RowBatch& batch) {
  for (const std::int32_t expert : expert_ids_) {
    METRO_REQUIRE(expert >= 0 && expert < num_experts_, "expert id " + std::to_string(expert));
  }
  row_to_rank_.clear();
  for (std::size_t rank = 0; rank < batch.rows_of_rank.size(); ++rank) {
    row_to_rank_.insert(row_to_rank_.end(), at(batch.rows_of_rank[rank]), static_cast<std::int32_t>(rank));
  }
  slots_.resize(expert_ids_.size());
  routers_[at(moe_layer)].route(expert_ids_, top_k_, row_to_rank_, batch.step, moe_layer, slots_);
  const ReplicaMap& map = (*maps_)[at(moe_layer)];
  assignment_to_rank_.resize(slots_.size());
  std::transform(slots_.begin(), slots_.end(), assignment_to_rank_.begin(),
                 [&map](std::int32_t slot) { return map.rank_of_slot(slot); });
  share_out(batch);
}

// Everyone knows every assignment: what each rank serves, what this rank serves of each owner, what it owns.
void DecodeRouting::share_out(const RowBatch& batch) {
  std::fill(served_by_rank_.begin(), served_by_rank_.end(), 0);
  std::fill(served_of_rank_.begin(), served_of_rank_.end(), 0);
  std::fill(owned_by_rank_.begin(), owned_by_rank_.end(), 0);
  served_.clear();
  std::int64_t assignment = 0;
  for (std::int64_t owner = 0; owner < std::ssize(batch.rows_of_rank); ++owner) {
    const std::int64_t num_owned = batch.rows_of_rank[at(owner)] * top_k_;
    if (owner == rank_) {
      owned_to_rank_ = std::span(assignment_to_rank_).subspan(at(assignment), at(num_owned));
    }
    served_begin_[at(owner)] = std::ssize(served_);
    for (const std::int64_t end = assignment + num_owned; assignment < end; ++assignment) {
      const std::int32_t server = assignment_to_rank_[at(assignment)];
      ++served_by_rank_[at(server)];
      if (owner == rank_) {
        ++owned_by_rank_[at(server)];
      }
      if (server == rank_) {
        ++served_of_rank_[at(owner)];
        served_.push_back({assignment / top_k_, expert_ids_[at(assignment)]});
      }
    }
  }
}

std::span<const ServedRow> DecodeRouting::served_of(std::int64_t owner, std::int64_t round,
                                                    std::int64_t num_rounds) const {
  const std::int64_t count = served_of_rank_[at(owner)];
  return std::span(served_).subspan(at(served_begin_[at(owner)] + slice_begin(count, round, num_rounds)),
                                    at(slice_size(count, round, num_rounds)));
}

std::int64_t DecodeRouting::most_served() const {
  return *std::max_element(served_by_rank_.begin(), served_by_rank_.end());
}

std::int64_t DecodeRouting::num_row_bytes() const {
  return held_bytes(expert_ids_, slots_, assignment_to_rank_, row_to_rank_) + held_bytes(served_) +
         held_bytes(served_by_rank_, served_of_rank_, served_begin_, owned_by_rank_);
}

std::int64_t DecodeRouting::num_router_bytes() const {
  std::int64_t bytes = 0;
  for (const StepRouter& router : routers_) {
    bytes += router.num_bytes();
  }
  return bytes;
}

Digest DecodeRouting::digest() const {
  // The ids and where they went.
  const std::array<Digest, 2> parts{digest_of_values(std::span<const std::int32_t>(expert_ids_)),
                                    digest_of_values(std::span<const std::int32_t>(assignment_to_rank_))};
  return digest_of_values(std::span<const Digest>(parts));
}

void DecodeRouting::observe(std::int64_t moe_layer, StepObserver& observer) {
  std::fill(counts_.begin(), counts_.end(), 0);
  for (const std::int32_t expert : expert_ids_) {
    ++counts_[at(expert)];
  }
  if (needs_counts_of_all_ranks(policy_)) {  // one slot of an expert per rank
    observer.routed(moe_layer, counts_, routers_[at(moe_layer)].activated());
    return;
  }
  // Several slots of an expert on one rank are read once: distinct pairs of expert and rank count.
  std::vector<bool> seen(activated_.size() * at(num_experts_), false);
  std::fill(activated_.begin(), activated_.end(), 0);
  for (std::size_t i = 0; i < expert_ids_.size(); ++i) {
    const std::int32_t expert = expert_ids_[i];
    const std::int32_t rank = assignment_to_rank_[i];
    if (!seen[at(rank * num_experts_ + expert)]) {
      seen[at(rank * num_experts_ + expert)] = true;
      ++activated_[at(rank)];
    }
  }
  observer.routed(moe_layer, counts_, activated_);
}

}  // namespace metro
