// The table of bench exchange for links that are not here: from published bandwidths, by the model of
// exchange_model.hpp.
#pragma once

#include "bench/exchange_bench.hpp"
#include "bench/exchange_model.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// An allgather within this share of the time that the weights of the experts take is called free.
inline constexpr double free_share = 0.1;

struct PaperRow {
  Link link;
  std::string model;
  ExchangeShape shape;
  std::int64_t num_ranks = 0;
  double crossover = 0.0;  // rows of all ranks; infinity: allgather is always the faster way
  RowRange free_rows;      // of all ranks, for which an allgather is free
  // With so many rows of all ranks, where allgather is left: the crossover rounded up, or 256 rows a rank if there is
  // none.
  double num_rows = 0.0;
  double allgather_us = 0.0, ids_us = 0.0, weights_us = 0.0;
};

// The published links, or that of options.latency_us, .bandwidth_gb and .memory_gb if a bandwidth is given.
std::vector<Link> paper_links(const ExchangeBenchOptions& options);

// For every link, shape and number of ranks. Shapes: all known models, and the options' if they change the model's.
std::vector<PaperRow> paper_table(const ExchangeBenchOptions& options);

}  // namespace metro
