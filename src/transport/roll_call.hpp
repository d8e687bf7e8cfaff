// What to say when ranks have waited too long: from the reports of those that still answer to one line that names those
// that do not. (Sending the reports around: mpi_roll_call.hpp.)
#pragma once

#include "transport/peers.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace metro {

// Where a rank is. Sent as bytes.
struct Report {
  std::int64_t rank = 0;
  std::int64_t num_operations = 0;  // that it has begun
  double waited_s = 0.0;            // in this one
  bool may_speak = false;           // this rank may be the one that prints
  std::array<char, 40> operation{};
  std::array<char, 64> phase{};

  bool is_at_same_place(const Report& other) const {
    return num_operations == other.num_operations && operation == other.operation && phase == other.phase;
  }
};

// Texts that are too long are cut.
Report make_report(std::int64_t rank, std::int64_t num_operations, double waited_s, const char* operation,
                   const char* phase);

// "rank 3", "ranks 0-6 and 8-1023"; ascending and at least one. More than a few runs are cut: "ranks 0, 2, 4, 6, 8, 10
// and 250 more".
std::string ranks_text(std::span<const std::int64_t> ranks);

// The line, without "metro: error: ". reports: of the ranks that answered, in any order, at least one; asked: the ranks
// that were to answer, ascending; why: what made the ranks give up, if not the time-out ("after SIGTERM"), or "".
std::string roll_call_text(std::span<const Report> reports, std::span<const std::int64_t> asked, const Peers& peers,
                           const std::string& why);

}  // namespace metro
