// A whole run: from a deck to completions.jsonl. Collective: every rank of the job calls run_job with the same deck.
#pragma once

#include "base/error.hpp"
#include "deck/deck.hpp"
#include "report/run_report.hpp"
#include "transport/exchange_way.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// Who takes part, as mpi_launch found it.
struct JobContext {
  std::vector<std::int64_t> rank_to_node;               // [num_ranks], nodes numbered from 0
  std::vector<std::string> rank_to_host;                // [num_ranks]
  std::string software;                                 // libraries and their versions, for the start-up table
  std::vector<RankBinding> rank_to_binding = {};        // [num_ranks]; empty: not known
  ExchangeDecision rows = {};                           // how memory of kernels gets to other ranks
  std::vector<std::int64_t> num_ranks_on_device = {};   // of every rank, itself included; empty: kernels run on hosts
  std::vector<std::int64_t> num_ranks_on_node() const;  // of every rank, itself included. [num_ranks]
};

struct JobOptions {
  bool dry_run = false;    // print deck and memory plan, then stop
  bool overwrite = false;  // replace the output of an earlier run
  bool strict = false;     // rejected lines make the exit code 3
};

// Returns done, or input when `strict` and lines were rejected. Throws AgreedError for what all ranks see alike, Error
// for what one rank sees (the caller ends the job).
ExitCode run_job(const Deck& deck, const JobOptions& options, const JobContext& job, Transport& transport);

}  // namespace metro
