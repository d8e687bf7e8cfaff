#include "decoder/exchange_choice.hpp"

#include "base/error.hpp"
#include "decoder/phase_clock.hpp"

#include <algorithm>
#include <array>

namespace metro {

namespace {

// Time over the better mode's.
double loss(std::int64_t ns, const ExchangeTimes& times) {
  const std::int64_t best = std::max<std::int64_t>(1, std::min(times.allgather_ns, times.ids_ns));
  return static_cast<double>(std::max<std::int64_t>(1, ns)) / static_cast<double>(best);
}

}  // namespace

std::int64_t border_of(std::span<const ExchangeTimes> times) {
  // From allgather always, downwards.
  double sum = 0.0;
  for (const ExchangeTimes& one : times) {
    sum += loss(one.allgather_ns, one);
  }
  double least = sum;
  std::int64_t border = unlimited_rows;
  for (std::size_t i = times.size(); i-- > 0;) {
    sum += loss(times[i].ids_ns, times[i]) - loss(times[i].allgather_ns, times[i]);
    if (sum < least) {
      least = sum;
      border = i == 0 ? 0 : times[i - 1].num_rows;
    }
  }
  return border;
}

double levels_ratio(const ExchangeTimes& one, const ExchangeTimes& two, ExchangeMode mode) {
  METRO_REQUIRE(one.num_rows == two.num_rows, "different numbers of rows were measured");
  const auto time = [mode](const ExchangeTimes& times) {
    const std::int64_t ns = mode == ExchangeMode::allgather           ? times.allgather_ns
                            : mode == ExchangeMode::ids_then_alltoall ? times.ids_ns
                                                                      : std::min(times.allgather_ns, times.ids_ns);
    return static_cast<double>(std::max<std::int64_t>(1, ns + times.ids_ns));
  };
  return time(two) / time(one);
}

ExchangeChoice choose_exchange(Transport& transport, std::int64_t max_rows, const ExchangeTimer& timer,
                               double time_limit_s) {
  ExchangeChoice choice;
  const Clock::time_point start = Clock::now();
  Clock::time_point last = start;
  std::int64_t go_on = 1;
  for (std::int64_t rows = 1; go_on != 0; rows = std::min(2 * rows, max_rows)) {
    ExchangeTimes times = timer(rows);
    std::array<std::int64_t, 2> slowest{times.allgather_ns, times.ids_ns};
    transport.all_reduce_max(slowest);
    choice.times.push_back({times.num_rows, slowest[0], slowest[1]});
    // Twice the rows take about twice the time; the clock that counts is that of rank 0.
    const Clock::time_point now = Clock::now();
    const bool in_time = seconds_between(start, now) + 2.0 * seconds_between(last, now) <= time_limit_s;
    last = now;
    go_on = in_time && rows < max_rows ? 1 : 0;
    transport.broadcast(std::as_writable_bytes(std::span(&go_on, 1)), 0);
  }
  choice.most_allgather_rows = border_of(choice.times);
  transport.broadcast(std::as_writable_bytes(std::span(&choice.most_allgather_rows, 1)), 0);
  return choice;
}

}  // namespace metro
