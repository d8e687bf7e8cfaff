// The parts of placement that need no search: slots per rank, the trivial placement, and the check against a job.
#include "placement/placement.hpp"

#include "base/error.hpp"
#include "placement/slot_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace metro {

namespace {

constexpr std::int64_t max_slots = std::numeric_limits<std::int32_t>::max();  // slot ids are 32-bit

std::int64_t divide_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

// Every slot holds an expert or nothing, and every expert of every layer has a slot.
void check_coverage(const Placement& placement, const std::string& origin) {
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    std::vector<bool> has_slot(static_cast<std::size_t>(placement.num_experts), false);
    for (const std::int32_t expert : placement.layer(layer)) {
      METRO_REQUIRE(expert >= Placement::empty_slot && expert < placement.num_experts,
                    fmt::format("expert {} in a slot of layer {}", expert, layer));
      if (expert != Placement::empty_slot) {
        has_slot[static_cast<std::size_t>(expert)] = true;
      }
    }
    const auto missing = std::find(has_slot.begin(), has_slot.end(), false);
    if (missing != has_slot.end()) {
      throw Error(ExitCode::usage, fmt::format("{}: expert {} has no slot in MoE layer {}; every expert needs one",
                                               origin, missing - has_slot.begin(), layer));
    }
  }
}

}  // namespace

void check_slot_budget(std::int64_t num_experts, std::int64_t num_ranks, std::int64_t slots_per_rank) {
  METRO_REQUIRE(num_experts >= 1 && num_experts <= max_slots, fmt::format("num_experts = {}", num_experts));
  METRO_REQUIRE(num_ranks >= 1 && num_ranks <= max_slots, fmt::format("num_ranks = {}", num_ranks));
  const std::int64_t smallest = divide_up(num_experts, num_ranks);
  if (slots_per_rank < smallest) {
    throw Error(
        ExitCode::usage,
        fmt::format("experts.slots_per_rank = {}: {} experts do not fit into the slots of {} ranks; the smallest "
                    "value that works is {}",
                    slots_per_rank, num_experts, num_ranks, smallest));
  }
  if (slots_per_rank > max_slots / num_ranks) {
    throw Error(ExitCode::usage, fmt::format("experts.slots_per_rank = {}: too many slots for {} ranks; the largest "
                                             "value allowed is {}",
                                             slots_per_rank, num_ranks, max_slots / num_ranks));
  }
}

std::int64_t slots_for_replication(std::int64_t num_experts, std::int64_t num_ranks, double replication) {
  METRO_REQUIRE(num_experts >= 1 && num_ranks >= 1, fmt::format("{} experts, {} ranks", num_experts, num_ranks));
  if (!std::isfinite(replication) || replication < 1.0) {
    throw Error(ExitCode::usage,
                fmt::format("experts.replication = {}: must be a finite number of 1 or more", replication));
  }
  const double exact = static_cast<double>(num_experts) * replication / static_cast<double>(num_ranks);
  if (exact > static_cast<double>(max_slots / num_ranks)) {
    throw Error(ExitCode::usage, fmt::format("experts.replication = {}: {} experts on {} ranks would need more than {} "
                                             "slots",
                                             replication, num_experts, num_ranks, max_slots));
  }
  // 100 experts * 1.1 is a little above 110 in binary; that must not cost every rank a slot.
  const double nearest = std::round(exact);
  const bool is_whole = std::abs(exact - nearest) <= 1e-9 * nearest;
  const auto slots = static_cast<std::int64_t>(is_whole ? nearest : std::ceil(exact));
  return std::max(slots, divide_up(num_experts, num_ranks));
}

Placement place_trivial(std::int64_t num_layers, std::int64_t num_experts, std::int64_t num_ranks,
                        std::int64_t slots_per_rank) {
  METRO_REQUIRE(num_layers >= 0, fmt::format("num_layers = {}", num_layers));
  check_slot_budget(num_experts, num_ranks, slots_per_rank);
  Placement placement{num_layers, num_experts, num_ranks, slots_per_rank, {}};
  placement.slot_to_expert.reserve(static_cast<std::size_t>(num_layers * placement.num_slots()));
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    for (std::int64_t slot = 0; slot < placement.num_slots(); ++slot) {
      placement.slot_to_expert.push_back(static_cast<std::int32_t>(slot % num_experts));
    }
  }
  return placement;
}

void check_placement(const Placement& placement, std::int64_t num_layers, std::int64_t num_experts,
                     std::int64_t num_ranks, const std::string& origin) {
  METRO_REQUIRE(std::ssize(placement.slot_to_expert) == placement.num_layers * placement.num_slots(),
                fmt::format("{} slots in {}", placement.slot_to_expert.size(), origin));
  const auto require_equal = [&](std::int64_t has, std::int64_t needs, const char* what, const char* whose) {
    if (has != needs) {
      throw Error(ExitCode::usage, fmt::format("{}: made for {} {}, but {} has {}", origin, has, what, whose, needs));
    }
  };
  require_equal(placement.num_layers, num_layers, "MoE layers", "the model");
  require_equal(placement.num_experts, num_experts, "experts", "the model");
  require_equal(placement.num_ranks, num_ranks, "ranks", "the job");
  check_coverage(placement, origin);
}

}  // namespace metro
