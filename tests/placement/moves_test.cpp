// From one placement to the next: as few changes within a rank as any order of slots has, and sources that have what
// they send.
#include "placement/moves.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

using metro::ExpertMove;
using metro::Placement;

namespace {

Placement one_layer(std::int64_t num_experts, std::int64_t num_ranks, std::vector<std::int32_t> slots) {
  const std::int64_t slots_per_rank = std::ssize(slots) / num_ranks;
  return {1, num_experts, num_ranks, slots_per_rank, std::move(slots)};
}

// Any placement; every expert has a slot.
Placement made_up(std::int64_t num_experts, std::int64_t num_ranks, std::int64_t slots_per_rank, std::mt19937& random) {
  std::vector<std::int32_t> slots(static_cast<std::size_t>(num_ranks * slots_per_rank));
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    slots[slot] = slot < static_cast<std::size_t>(num_experts)
                      ? static_cast<std::int32_t>(slot)
                      : static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(num_experts + 1)) - 1;
  }
  std::shuffle(slots.begin(), slots.end(), random);
  return one_layer(num_experts, num_ranks, slots);
}

std::int64_t differences(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    count += a[i] != b[i] ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("slots within a rank are kept as well as the best of all orders keeps them") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const Placement now = made_up(6, 3, 4, random);
    const Placement next = made_up(6, 3, 4, random);

    const Placement kept = metro::keep_slots(now, next);

    std::int64_t least_sum = 0;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const auto old_slots = now.layer(0).subspan(rank * 4, 4);
      std::array<std::int32_t, 4> order{};
      std::copy_n(next.layer(0).begin() + static_cast<std::ptrdiff_t>(rank * 4), 4, order.begin());
      std::sort(order.begin(), order.end());
      std::array<std::int32_t, 4> found{};
      std::copy_n(kept.layer(0).begin() + static_cast<std::ptrdiff_t>(rank * 4), 4, found.begin());
      std::sort(found.begin(), found.end());
      CHECK(found == order);  // the same experts on the rank
      std::int64_t least = 4;
      do {
        least = std::min(least, differences(old_slots, order));
      } while (std::next_permutation(order.begin(), order.end()));
      least_sum += least;
    }
    CHECK(metro::num_slots_changed(now, kept) == least_sum);
  }
}

TEST_CASE("a placement that only orders the slots of a rank in another way changes nothing") {
  const Placement now = one_layer(4, 2, {0, 1, 2, 2, 3, -1});
  const Placement next = one_layer(4, 2, {2, 0, 1, 3, -1, 2});

  const Placement kept = metro::keep_slots(now, next);

  CHECK(kept.slot_to_expert == now.slot_to_expert);
  CHECK(metro::num_slots_changed(now, kept) == 0);
  CHECK(metro::plan_moves(now, next, 0).empty());
}

TEST_CASE("a cycle of three ranks gives three moves") {
  const Placement now = one_layer(3, 3, {0, 1, 2});
  const Placement next = one_layer(3, 3, {2, 0, 1});

  const auto moves = metro::plan_moves(now, next, 0);

  CHECK(moves == std::vector<ExpertMove>{{2, 2, 0}, {0, 0, 1}, {1, 1, 2}});
}

TEST_CASE("destinations of an expert are shared out over the ranks that have it") {
  // Experts 0 and 1 on ranks 0 and 1; expert 0 goes to ranks 2 to 5, expert 2 can come from rank 0 only.
  const Placement now = one_layer(7, 6, {0, 1, 2, 0, 1, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 3, 3, 3});
  const Placement next = one_layer(7, 6, {0, 1, 2, 0, 1, 3, 4, 0, 4, 5, 0, 2, 6, 0, 6, 3, 0, 3});

  const auto moves = metro::plan_moves(now, next, 0);

  std::map<std::int32_t, int> sends;
  for (const ExpertMove& move : moves) {
    ++sends[move.from_rank];
  }
  CHECK(moves.size() == 5);
  CHECK(sends == std::map<std::int32_t, int>{{0, 3}, {1, 2}});  // five over two: no better than three
}

TEST_CASE("every rank gets what it lacks, once, from a rank that has it") {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const Placement now = made_up(8, 4, 3, random);
    const Placement next = made_up(8, 4, 3, random);

    const auto moves = metro::plan_moves(now, next, 0);

    std::set<std::pair<std::int32_t, std::int32_t>> held;  // rank, expert
    for (std::int32_t slot = 0; slot < 12; ++slot) {
      held.insert({slot / 3, now.layer(0)[static_cast<std::size_t>(slot)]});
    }
    std::set<std::pair<std::int32_t, std::int32_t>> arrived;
    for (const ExpertMove& move : moves) {
      CHECK(held.count({move.from_rank, move.expert}) == 1);
      CHECK(held.count({move.to_rank, move.expert}) == 0);
      CHECK(arrived.insert({move.to_rank, move.expert}).second);
    }
    std::size_t num_missing = 0;
    std::set<std::pair<std::int32_t, std::int32_t>> needed;
    for (std::int32_t slot = 0; slot < 12; ++slot) {
      const std::int32_t expert = next.layer(0)[static_cast<std::size_t>(slot)];
      if (expert >= 0 && held.count({slot / 3, expert}) == 0 && needed.insert({slot / 3, expert}).second) {
        ++num_missing;
        CHECK(arrived.count({slot / 3, expert}) == 1);
      }
    }
    CHECK(moves.size() == num_missing);
  }
}

TEST_CASE("balancedness is the mean of the ranks' loads over the largest") {
  const std::vector<std::int64_t> loads{200, 0, 0, 0};

  // Mean 50, largest 200; two replicas on two ranks halve the largest; without rows nothing is uneven.
  CHECK(metro::balancedness(one_layer(4, 4, {0, 1, 2, 3}), 0, loads) == 0.25);
  CHECK(metro::balancedness(one_layer(4, 4, {0, 1, 2, 0, 2, 3, -1, 1}), 0, loads) == 0.5);
  CHECK(metro::balancedness(one_layer(4, 4, {0, 1, 2, 3}), 0, std::vector<std::int64_t>(4, 0)) == 1.0);
}
