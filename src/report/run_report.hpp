// What a person sees of a run before it starts. Rank 0 only, on the given stream.
#pragma once

#include "decoder/decoder.hpp"
#include "report/run_records.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// "1.4 GiB"; bytes below 1 KiB as such.
std::string human_bytes(std::int64_t num_bytes);
// "1 step", "2 steps".
std::string counted(std::int64_t n, std::string_view what);

// Program, software, checkpoint, model, job, placement, routing and exchange, a line each; and one that warns of
// threads that share cores.
void print_identity(const RunIdentity& identity, std::FILE* out);

// The identity and what every rank allocates.
struct StartTable {
  const RunIdentity* identity = nullptr;
  std::string sharing;        // how often dense weights lie in memory, and why
  std::string decode;         // how it runs on a device; empty on a host
  std::string prefill;        // how its experts are computed, if not as those of decode; else empty
  std::string prefixes = {};  // whether prompts share blocks
  std::vector<MemoryPlan> memory_of_rank;
  std::vector<std::int64_t> free_of_rank;
  std::int64_t kv_tokens_per_rank = 0;
  std::int64_t max_context = 0;
};
void print_start_table(const StartTable& table, std::FILE* out);

}  // namespace metro
