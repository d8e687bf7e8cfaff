#include "engine/exchange_setup.hpp"

#include "base/error.hpp"
#include "decoder/exchange_choice.hpp"
#include "decoder/exchange_trial.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

namespace metro {

namespace {

constexpr int num_repetitions = 3;
constexpr double time_limit_s = 0.15;
// Rows of all ranks beyond which bytes decide alone, and more of them would only cost time and memory. With more ranks
// than a row has experts an allgather moves the more bytes, so it gets no larger buffer then: at 1024 ranks that would
// take more memory than all the rest of the exchange.
constexpr std::int64_t most_gathered_bytes = std::int64_t{32} << 20;
// Memory of a node for messages with two levels; there are two of it.
constexpr std::int64_t least_node_bytes = std::int64_t{1} << 20;
constexpr std::int64_t most_node_bytes = std::int64_t{32} << 20;
// Rows of all ranks with which they are measured, where the batch is larger: some seconds on the slowest of links.
constexpr std::int64_t most_levels_bytes = std::int64_t{2} << 20;
// Two levels must be so much better than one, to be worth a change.
constexpr double most_levels_ratio = 0.95;

// Rows of each rank that are measured.
std::int64_t most_trial_rows(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_decode_rows) {
  const std::int64_t row_bytes = spec.hidden_size * static_cast<std::int64_t>(sizeof(float));
  return std::max<std::int64_t>(1, std::min(most_gathered_bytes / (num_ranks * row_bytes), max_decode_rows));
}

ExchangeMode mode_named(const std::string& name) {
  for (const ExchangeMode mode : {ExchangeMode::automatic, ExchangeMode::allgather, ExchangeMode::ids_then_alltoall}) {
    if (name == name_of(mode)) {
      return mode;
    }
  }
  throw Bug("the deck let an unknown exchange pass: " + name);
}

LevelsWish levels_named(const std::string& name) {
  METRO_REQUIRE(name == "auto" || name == "one" || name == "two", "the deck let unknown levels pass: " + name);
  return name == "auto" ? LevelsWish::automatic : name == "one" ? LevelsWish::one : LevelsWish::two;
}

// For messages of a decode step to and from other nodes: the results of all rows, up to a bound.
std::int64_t node_bytes(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows) {
  const std::int64_t row_bytes = spec.hidden_size * static_cast<std::int64_t>(sizeof(float));
  return std::clamp(num_ranks * max_rows * spec.moe.top_k * row_bytes, least_node_bytes, most_node_bytes);
}

// Collective. The levels that may be used; the first one if nothing is to be chosen.
std::vector<Levels> possible_levels(LevelsWish wish, std::int64_t num_bytes, Transport& transport) {
  if (wish == LevelsWish::one) {
    return {Levels::one};
  }
  if (wish == LevelsWish::automatic) {
    const std::vector<std::int64_t> rooms = gather_integers(transport, transport.node_memory_room());
    if (*std::min_element(rooms.begin(), rooms.end()) < 4 * num_bytes) {
      return {Levels::one};
    }
  }
  if (!transport.prepare_two_levels(num_bytes)) {
    return {Levels::one};
  }
  return wish == LevelsWish::two ? std::vector{Levels::two} : std::vector{Levels::one, Levels::two};
}

// The best of a few repetitions of both modes in turn, after one that touches all memory.
ExchangeTimes time_exchanges(ExchangeTrial& trial, std::int64_t rows_per_rank, std::int64_t num_ranks) {
  trial.set_rows(rows_per_rank, static_cast<std::uint64_t>(rows_per_rank));
  constexpr std::int64_t longest = std::numeric_limits<std::int64_t>::max();
  ExchangeTimes times{rows_per_rank * num_ranks, longest, longest};
  for (int i = 0; i <= num_repetitions; ++i) {
    const std::int64_t allgather_ns = trial.run(ExchangeMode::allgather);
    const std::int64_t ids_ns = trial.run(ExchangeMode::ids_then_alltoall);
    if (i > 0) {
      times.allgather_ns = std::min(times.allgather_ns, allgather_ns);
      times.ids_ns = std::min(times.ids_ns, ids_ns);
    }
  }
  return times;
}

std::string describe(const ExchangeChoice& choice) {
  const ExchangeTimes& last = choice.times.back();
  const std::string measured = fmt::format(
      "measured up to {} rows of all ranks: there {:.1f} us by allgather, {:.1f} us by ids_then_alltoall",
      last.num_rows, 1e-3 * static_cast<double>(last.allgather_ns), 1e-3 * static_cast<double>(last.ids_ns));
  if (choice.most_allgather_rows == unlimited_rows) {
    return fmt::format("auto: allgather ({})", measured);
  }
  if (choice.most_allgather_rows == 0) {
    return fmt::format("auto: ids_then_alltoall ({})", measured);
  }
  return fmt::format("auto: allgather for up to {} rows of all ranks, ids_then_alltoall for more ({})",
                     choice.most_allgather_rows, measured);
}

// Collective. The better levels, as rank 0 says, with so many rows of each rank; `said`: that.
Levels agreed_levels(ExchangeTrial& trial, std::int64_t rows_per_rank, ExchangeMode mode, Transport& transport,
                     std::string& said) {
  constexpr std::array levels{Levels::one, Levels::two};
  constexpr std::int64_t longest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t num_rows = rows_per_rank * transport.size();
  std::array<ExchangeTimes, 2> times{{{num_rows, longest, longest}, {num_rows, longest, longest}}};
  for (int turn = 0; turn < 2; ++turn) {
    for (std::size_t i = 0; i < levels.size(); ++i) {
      transport.set_levels(levels[i]);
      const ExchangeTimes now = time_exchanges(trial, rows_per_rank, transport.size());
      std::array<std::int64_t, 2> slowest{now.allgather_ns, now.ids_ns};
      transport.all_reduce_max(slowest);
      times[i].allgather_ns = std::min(times[i].allgather_ns, slowest[0]);
      times[i].ids_ns = std::min(times[i].ids_ns, slowest[1]);
    }
  }
  const double ratio = levels_ratio(times[0], times[1], mode);
  std::int64_t is_two = ratio < most_levels_ratio ? 1 : 0;
  transport.broadcast(std::as_writable_bytes(std::span(&is_two, 1)), 0);
  said = fmt::format("; {} (two take {:.2f} of the time of one, with {} rows of all ranks)",
                     is_two == 1 ? "two levels" : "one level", ratio, num_rows);
  return is_two == 1 ? Levels::two : Levels::one;
}

}  // namespace

ExchangeSettings exchange_settings(const Deck& deck, const ModelSpec& spec, std::int64_t num_ranks) {
  ExchangeSettings settings;
  settings.mode = mode_named(deck.decode.exchange);
  settings.gathered_gate = deck.decode.gate == "gathered";
  settings.levels = num_ranks == 1 || spec.num_moe_layers() == 0 ? LevelsWish::one : levels_named(deck.exchange.levels);
  const bool no_choice = num_ranks == 1 || settings.gathered_gate || spec.num_moe_layers() == 0;
  if (settings.mode == ExchangeMode::automatic && no_choice) {
    settings.mode = ExchangeMode::allgather;
  }
  if (settings.mode == ExchangeMode::automatic && num_ranks > spec.moe.top_k) {
    settings.most_gathered_rows = num_ranks * most_trial_rows(spec, num_ranks, deck.batch.max_sequences_per_rank);
  }
  return settings;
}

std::string agree_on_exchange(const ModelSpec& spec, const Placement& placement, const RoutingSettings& routing,
                              DeviceExchange& exchange, DecoderLimits& limits) {
  Transport& transport = exchange.transport();
  ExchangeSettings& settings = limits.exchange;
  const LevelsWish wish = exchange.uses_host_memory() ? settings.levels : LevelsWish::one;
  const std::vector<Levels> levels =
      possible_levels(wish, node_bytes(spec, transport.size(), limits.max_decode_rows), transport);
  transport.set_levels(levels.front());
  const char* gate = settings.gathered_gate ? "; gate on the rows of all ranks" : "";
  std::string said = fmt::format("{}{}", name_of(settings.mode), gate);
  std::string said_of_levels = levels.front() == Levels::two ? "; two levels" : "";
  if (settings.mode == ExchangeMode::automatic || levels.size() > 1) {
    const std::int64_t max_rows = most_trial_rows(spec, transport.size(), limits.max_decode_rows);
    ExchangeTrial trial(spec, placement, routing, exchange, max_rows);
    if (levels.size() > 1) {
      const std::int64_t row_bytes = spec.hidden_size * static_cast<std::int64_t>(sizeof(float));
      const std::int64_t rows =
          std::clamp<std::int64_t>(most_levels_bytes / (transport.size() * row_bytes), 1, max_rows);
      transport.set_levels(agreed_levels(trial, rows, settings.mode, transport, said_of_levels));
    }
    if (settings.mode == ExchangeMode::automatic) {
      ExchangeChoice choice = choose_exchange(
          transport, max_rows,
          [&](std::int64_t rows_per_rank) { return time_exchanges(trial, rows_per_rank, transport.size()); },
          time_limit_s);
      if (settings.most_gathered_rows < transport.size() * limits.max_decode_rows) {
        choice.most_allgather_rows = std::min(choice.most_allgather_rows, settings.most_gathered_rows);
      }
      settings.most_allgather_rows = choice.most_allgather_rows;
      said = describe(choice);
    }
  }
  return said + said_of_levels;
}

}  // namespace metro
