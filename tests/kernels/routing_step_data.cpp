#include "routing_step_data.hpp"

#include "base/integers.hpp"
#include "routing/step_router.hpp"
#include "support/kernel_memory.hpp"

#include <algorithm>

namespace metro::test {

namespace {

RoutingPolicy policy_of(StepPolicy policy) {
  switch (policy) {
    case StepPolicy::metro:
      return RoutingPolicy::metro;
    case StepPolicy::metro_scarce:
      return RoutingPolicy::metro_scarce;
    case StepPolicy::exact:
      return RoutingPolicy::exact;
    default:
      return RoutingPolicy::even;
  }
}

Ids row_begin_of(const StepProblem& problem) {
  Ids row_begin;
  const Ids& row_to_rank = problem.batch.row_to_rank;
  for (std::int64_t rank = 0; rank <= problem.num_ranks; ++rank) {
    row_begin.push_back(static_cast<std::int32_t>(std::lower_bound(row_to_rank.begin(), row_to_rank.end(), rank) -
                                                  row_to_rank.begin()));
  }
  return row_begin;
}

// Lists one behind the other, with where each begins.
void append(const Ids& list, Ids& begin, Ids& all) {
  begin.push_back(static_cast<std::int32_t>(all.size()));
  all.insert(all.end(), list.begin(), list.end());
}

// Assignments by rank or slot: keys [num_assignments], -1 for none.
std::vector<Ids> grouped(const Ids& assignments, const Ids& keys, std::int64_t num_keys) {
  std::vector<Ids> groups(at(num_keys));
  for (const std::int32_t assignment : assignments) {
    if (keys[at(assignment)] >= 0) {
      groups[at(keys[at(assignment)])].push_back(assignment);
    }
  }
  return groups;
}

}  // namespace

RoutingStep::Sizes StepProblem::sizes() const {
  return {num_experts, num_ranks, slots_per_rank(), static_cast<std::int64_t>(batch.expert_ids.size())};
}

DeviceRows::DeviceRows(const StepProblem& problem)
    : num_rows_(static_cast<std::int64_t>(problem.batch.row_to_rank.size())),
      top_k_(problem.batch.top_k),
      ids_("ids", num_rows_ * top_k_),
      row_begin_("row_begin", problem.num_ranks + 1) {
  copy_from_host<std::int32_t>(ids_.data(), problem.batch.expert_ids);
  copy_from_host<std::int32_t>(row_begin_.data(), row_begin_of(problem));
}

GatheredRows DeviceRows::rows() const {
  return {ids_.data(), num_rows_, top_k_, row_begin_.data()};
}

StepLists expected_lists(StepPolicy policy, const StepProblem& problem, std::int64_t rank) {
  const ReplicaMap map(problem.slot_to_expert, problem.num_experts, problem.num_ranks);
  const Batch& batch = problem.batch;
  StepRouter router(policy_of(policy), map);
  StepLists lists;
  lists.slots.resize(batch.expert_ids.size());
  router.route(batch.expert_ids, batch.top_k, batch.row_to_rank, 0, 0, lists.slots);
  lists.rows_of_expert = batch.counts(problem.num_experts);
  lists.activated.assign(router.activated().begin(), router.activated().end());
  lists.served_by_rank.assign(router.rows().begin(), router.rows().end());
  lists.lambda = {router.lambda()};
  lists.expert_to_rank.assign(at(problem.num_experts), -1);
  if (policy != StepPolicy::even) {
    ExpertRouter(policy_of(policy), map).route(lists.rows_of_expert, lists.expert_to_rank);
  }

  Ids all, owner, server, own_slot, own;
  for (std::int32_t i = 0; i < std::ssize(lists.slots); ++i) {
    const std::int32_t slot = lists.slots[at(i)];
    all.push_back(i);
    server.push_back(slot < 0 ? -1 : map.rank_of_slot(slot));
    own_slot.push_back(server.back() == rank ? static_cast<std::int32_t>(slot - rank * map.slots_per_rank()) : -1);
    owner.push_back(batch.row_to_rank[at(i / batch.top_k)]);
    if (owner.back() == rank) {
      own.push_back(i);
    }
  }
  for (const Ids& of_slot : grouped(all, own_slot, map.slots_per_rank())) {
    append(of_slot, lists.work_begin, lists.work);
  }
  append({}, lists.work_begin, lists.work);
  Ids work_row(all.size(), -1);
  for (std::size_t i = 0; i < lists.work.size(); ++i) {
    work_row[at(lists.work[i])] = static_cast<std::int32_t>(i);
  }
  for (const Ids& of_owner : grouped(all, owner, problem.num_ranks)) {
    Ids rows;
    for (const std::int32_t assignment : of_owner) {
      if (work_row[at(assignment)] >= 0) {
        rows.push_back(work_row[at(assignment)]);
        lists.served.push_back(assignment);
      }
    }
    append(rows, lists.sent_begin, lists.sent_rows);
  }
  append({}, lists.sent_begin, lists.sent_rows);
  Ids returned;
  for (const Ids& of_server : grouped(own, server, problem.num_ranks)) {
    append(of_server, lists.returned_begin, returned);
  }
  append({}, lists.returned_begin, returned);
  for (const std::int32_t assignment : own) {
    const auto place = std::find(returned.begin(), returned.end(), assignment) - returned.begin();
    lists.returned_row.push_back(place < std::ssize(returned) ? static_cast<std::int32_t>(place) : -1);
  }
  return lists;
}

StepLists lists_of(const RoutingStep& step, const StepProblem& problem, std::int64_t rank) {
  const RoutingResult& result = step.result();
  const auto num_assignments = static_cast<std::int64_t>(problem.batch.expert_ids.size());
  const std::int64_t num_ranks = problem.num_ranks;
  const Ids work_begin = host_copy(result.work_begin, problem.slots_per_rank() + 1);
  const Ids row_begin = row_begin_of(problem);
  const std::int64_t num_owned = (row_begin[at(rank + 1)] - row_begin[at(rank)]) * problem.batch.top_k;
  return {host_copy(result.slots, num_assignments),
          host_copy(result.rows_of_expert, problem.num_experts),
          host_copy(result.expert_to_rank, problem.num_experts),
          host_copy(result.activated, num_ranks),
          host_copy(result.served_by_rank, num_ranks),
          host_copy(result.lambda, 1),
          work_begin,
          host_copy(result.work, work_begin.back()),
          host_copy(result.sent_begin, num_ranks + 1),
          host_copy(result.served, work_begin.back()),
          host_copy(result.sent_rows, work_begin.back()),
          host_copy(result.returned_begin, num_ranks + 1),
          host_copy(result.returned_row, num_owned)};
}

std::uint64_t checksum_of(const RoutingStep& step) {
  std::uint64_t checksum = 0;
  copy_to_host<std::uint64_t>({&checksum, 1}, step.result().checksum);
  return checksum;
}

std::vector<int> team_sizes() {
  std::vector<int> sizes;
  for (int size = 1; size <= RoutingStep::max_team_size(); size *= 2) {
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace metro::test
