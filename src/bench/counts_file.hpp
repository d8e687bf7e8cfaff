// Rows per expert of real batches, for `metro bench route --counts`.
// File: {"num_experts": E, "counts": [[E integers] per batch]}; further keys are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct CountsFile {
  std::int64_t num_experts = 0;
  std::vector<std::vector<std::int32_t>> batches;  // each [num_experts], >= 0
};

// Throws Error(input) naming the file and what is wrong.
CountsFile read_counts(const std::string& path);

// The ids of a batch with these counts, one per row, in an order drawn from `seed`: which row chose what is not known.
std::vector<std::int32_t> ids_with_counts(const std::vector<std::int32_t>& counts, std::uint64_t seed);

}  // namespace metro
