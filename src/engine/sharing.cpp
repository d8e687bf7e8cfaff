#include "engine/sharing.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "report/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

namespace {

// Of a node's free memory; beyond it, copies cost more in KV cache than they gain in speed.
constexpr std::int64_t most_copies = 4;
// A file system is never filled to the last byte: MPI has its own segments there.
constexpr std::int64_t spare_bytes = std::int64_t{64} << 20;

}  // namespace

std::vector<std::int64_t> ranks_on_same_node(std::span<const std::int64_t> rank_to_node) {
  std::vector<std::int64_t> ranks_on_node;
  for (const std::int64_t node : rank_to_node) {
    ranks_on_node.resize(std::max(ranks_on_node.size(), at(node + 1)), 0);
    ++ranks_on_node[at(node)];
  }
  std::vector<std::int64_t> counts;
  counts.reserve(rank_to_node.size());
  for (const std::int64_t node : rank_to_node) {
    counts.push_back(ranks_on_node[at(node)]);
  }
  return counts;
}

SharingChoice choose_sharing(const std::string& wish, const SharingFacts& facts) {
  METRO_REQUIRE(wish == "auto" || wish == "node" || wish == "rank", wish);
  const std::vector<std::int64_t>& nodes = facts.rank_to_node;
  const std::vector<std::int64_t> num_ranks_of = ranks_on_same_node(nodes);
  std::int64_t most_ranks = 1;
  std::string why_copies_are_too_much;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const std::int64_t num_ranks = num_ranks_of[rank];
    most_ranks = std::max(most_ranks, num_ranks);
    if (num_ranks > 1 && facts.num_bytes > facts.free_of_rank[rank] / most_copies) {
      why_copies_are_too_much = fmt::format("copies would take more than 1/{} of a node's free memory", most_copies);
    }
  }
  if (most_ranks == 1) {
    return {Sharing::per_rank, "a node has one rank"};
  }
  if (!facts.in_host_memory) {
    return {Sharing::per_rank, "devices do not share memory"};
  }
  if (wish == "rank") {
    return {Sharing::per_rank, "model.sharing = \"rank\""};
  }
  if (wish == "auto" && why_copies_are_too_much.empty()) {
    return {Sharing::per_rank, fmt::format("copies take less than 1/{} of a node's free memory", most_copies)};
  }
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (facts.room_for_rank[rank] - spare_bytes < facts.num_bytes) {
      return {Sharing::per_rank,
              fmt::format("node {} has only {} of shared memory (/dev/shm)", nodes[rank],
                          human_bytes(std::max<std::int64_t>(facts.room_for_rank[rank] - spare_bytes, 0)))};
    }
  }
  return {Sharing::per_node, wish == "node" ? "model.sharing = \"node\"" : why_copies_are_too_much};
}

}  // namespace metro
