// decode.exchange = "auto": the ranks measure both ways of exchanging at several numbers of rows and agree on the
// number up to which rows are gathered by all; with more, ids are, and each row goes where it is needed. What is
// measured decides how bytes travel, never what is computed.
#pragma once

#include "decoder/exchange_mode.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace metro {

// Of one exchange with so many rows of all ranks, in nanoseconds.
struct ExchangeTimes {
  std::int64_t num_rows = 0;
  std::int64_t allgather_ns = 0;
  std::int64_t ids_ns = 0;
};

// The number of rows up to which allgather is to be used: of the borders between measured numbers of rows, the one for
// which the times of the chosen mode, each over the time of the better mode at that number, have the least sum; of
// equal ones the highest. 0: never; unlimited_rows: always, also without measurements. times: ascending in num_rows.
std::int64_t border_of(std::span<const ExchangeTimes> times);
inline constexpr std::int64_t unlimited_rows = std::int64_t{1} << 62;

struct ExchangeChoice {
  std::int64_t most_allgather_rows = unlimited_rows;
  std::vector<ExchangeTimes> times;  // of the slowest rank, ascending in num_rows
};

// Time of two levels over that of one, with equally many rows. A time is that of the rows' way to the experts, by the
// faster of the modes that `mode` leaves, and of the results' way back, for which ids_then_alltoall stands: an
// all-to-all as well.
double levels_ratio(const ExchangeTimes& one, const ExchangeTimes& two, ExchangeMode mode);

// Measures on this rank with so many rows of each rank; collective.
using ExchangeTimer = std::function<ExchangeTimes(std::int64_t rows_per_rank)>;

// Collective; the same answer on all ranks, which is rank 0's. Measures with 1, 2, 4 ... rows per rank and with
// max_rows, and stops early when time_limit_s would be exceeded.
ExchangeChoice choose_exchange(Transport& transport, std::int64_t max_rows, const ExchangeTimer& timer,
                               double time_limit_s);

}  // namespace metro
