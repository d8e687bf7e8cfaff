#include "engine/exchange_setup.hpp"

#include "base/error.hpp"
#include "decoder/exchange_choice.hpp"
#include "decoder/exchange_trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace metro {

namespace {

constexpr int num_repetitions = 3;
constexpr double time_limit_s = 0.15;
// Rows of all ranks beyond which bytes decide alone, and more of them would only cost time and memory. With more ranks
// than a row has experts an allgather moves the more bytes, so it gets no larger buffer then: at 1024 ranks that would
// take more memory than all the rest of the exchange.
constexpr std::int64_t most_gathered_bytes = std::int64_t{32} << 20;

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

}  // namespace

ExchangeSettings exchange_settings(const Deck& deck, const ModelSpec& spec, std::int64_t num_ranks) {
  ExchangeSettings settings;
  settings.mode = mode_named(deck.decode.exchange);
  settings.gathered_gate = deck.decode.gate == "gathered";
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
                              Transport& transport, DecoderLimits& limits) {
  ExchangeSettings& settings = limits.exchange;
  const char* gate = settings.gathered_gate ? "; gate on the rows of all ranks" : "";
  if (settings.mode != ExchangeMode::automatic) {
    return fmt::format("{}{}", name_of(settings.mode), gate);
  }
  const std::int64_t max_rows = most_trial_rows(spec, transport.size(), limits.max_decode_rows);
  ExchangeTrial trial(spec, placement, routing, transport, max_rows);
  ExchangeChoice choice = choose_exchange(
      transport, max_rows,
      [&](std::int64_t rows_per_rank) { return time_exchanges(trial, rows_per_rank, transport.size()); }, time_limit_s);
  if (settings.most_gathered_rows < transport.size() * limits.max_decode_rows) {
    choice.most_allgather_rows = std::min(choice.most_allgather_rows, settings.most_gathered_rows);
  }
  settings.most_allgather_rows = choice.most_allgather_rows;
  return describe(choice);
}

}  // namespace metro
