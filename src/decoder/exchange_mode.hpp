// The two ways by which rows of a decode step reach the experts, and the name of each in a deck.
#pragma once

#include <cstdint>
#include <string_view>

namespace metro {

enum class ExchangeMode {
  automatic,         // one of the two for every step, by its rows
  allgather,         // all rows and ids to all ranks, in one collective
  ids_then_alltoall  // ids to all ranks, then each row to the ranks that serve it: two collectives, fewer bytes
};

constexpr std::string_view name_of(ExchangeMode mode) {
  switch (mode) {
    case ExchangeMode::automatic:
      return "auto";
    case ExchangeMode::allgather:
      return "allgather";
    case ExchangeMode::ids_then_alltoall:
      return "ids_then_alltoall";
  }
  return "?";
}

// How rows get to other nodes, as the deck wants it; what comes of it is the transport's state (Levels).
enum class LevelsWish { automatic, one, two };

// How a decode step exchanges; the same on all ranks, and of no effect on results.
struct ExchangeSettings {
  ExchangeMode mode = ExchangeMode::allgather;
  std::int64_t most_allgather_rows = 0;  // of `automatic`: allgather for steps of at most so many rows of all ranks
  // The gate runs on the gathered rows of all ranks, on every rank, instead of each rank's own; only with allgather.
  bool gathered_gate = false;
  // Rows of all ranks that an allgather has room for, if a step can have as many; fewer for `automatic` only.
  std::int64_t most_gathered_rows = std::int64_t{1} << 62;
  LevelsWish levels = LevelsWish::one;

  bool may_allgather() const { return mode != ExchangeMode::ids_then_alltoall; }
  bool may_send_ids() const { return mode != ExchangeMode::allgather; }
};

}  // namespace metro
