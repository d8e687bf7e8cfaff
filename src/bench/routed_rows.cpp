#include "bench/routed_rows.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "placement/placement.hpp"
#include "routing/replica_map.hpp"
#include "routing/step_router.hpp"

#include <algorithm>
#include <span>

namespace metro {

namespace {

// Rows that travel, once to each rank that serves some of their assignments: to each rank, and in all.
struct Travellers {
  std::vector<std::int64_t> received;  // [num_ranks]
  std::int64_t all = 0;
};

Travellers count_travellers(const std::vector<std::int32_t>& slots, std::int64_t top_k, std::int64_t batch,
                            const ReplicaMap& map) {
  Travellers travellers{std::vector<std::int64_t>(at(map.num_ranks()), 0), 0};
  std::vector<std::int64_t> last_row(at(map.num_ranks()), -1);  // that was counted for a rank
  const std::int64_t num_rows = std::ssize(slots) / top_k;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    last_row[at(row / batch)] = row;  // it is there
    for (std::int64_t k = 0; k < top_k; ++k) {
      const auto rank = at(map.rank_of_slot(slots[at(row * top_k + k)]));
      if (last_row[rank] != row) {
        last_row[rank] = row;
        ++travellers.received[rank];
        ++travellers.all;
      }
    }
  }
  return travellers;
}

}  // namespace

RowSampler::RowSampler(const SyntheticBatches& choices)
    : choices_(choices), loads_(choices.loads()), expert_ids_(choices.batch(0)) {}

RoutedRows RowSampler::sample(RoutingPolicy policy, std::int64_t num_ranks, std::int64_t batch,
                              std::int64_t slots_per_rank) const {
  constexpr std::int64_t most_steps = 64;
  const std::int64_t num_rows = num_ranks * batch;
  const std::int64_t num_steps = std::min(most_steps, choices_.num_tokens / num_rows);
  METRO_REQUIRE(num_steps >= 1, "too few rows were drawn");
  const Placement placement = place_eplb(loads_, 1, choices_.num_experts, 1, 1, num_ranks, slots_per_rank);
  const ReplicaMap map(placement.layer(0), choices_.num_experts, num_ranks);
  StepRouter router(policy, map);
  std::vector<std::int32_t> row_to_rank;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    row_to_rank.push_back(static_cast<std::int32_t>(row / batch));
  }
  std::vector<std::int32_t> slots(at(num_rows * choices_.top_k));
  RoutedRows sum;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    const auto ids = std::span(expert_ids_).subspan(at(step) * slots.size(), slots.size());
    router.route(ids, choices_.top_k, row_to_rank, step, 0, slots);
    const Travellers travellers = count_travellers(slots, choices_.top_k, batch, map);
    sum.lambda += static_cast<double>(router.lambda());
    sum.assignments += static_cast<double>(*std::max_element(router.rows().begin(), router.rows().end()));
    sum.received += static_cast<double>(*std::max_element(travellers.received.begin(), travellers.received.end()));
    sum.sent += static_cast<double>(travellers.all) / static_cast<double>(num_ranks);
  }
  const auto steps = static_cast<double>(num_steps);
  return {sum.lambda / steps, sum.assignments / steps, sum.received / steps, sum.sent / steps};
}

}  // namespace metro
