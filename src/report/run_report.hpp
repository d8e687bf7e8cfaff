// What a person sees of a run: the table at the start, progress, the summary. Rank 0 only, on the given stream.
#pragma once

#include "decoder/decoder.hpp"
#include "model/model_spec.hpp"
#include "placement/placement.hpp"
#include "report/run_statistics.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace metro {

// "1.4 GiB"; bytes below 1 KiB as such.
std::string human_bytes(std::int64_t num_bytes);

struct StartTable {
  std::string version;     // program and build
  std::string software;    // libraries
  std::string checkpoint;  // path
  std::string checkpoint_digest;
  const ModelSpec* spec = nullptr;
  const Placement* placement = nullptr;
  std::string placement_name;
  std::string decode_policy, prefill_policy;
  std::string transport;
  std::vector<std::string> rank_to_host;
  std::vector<std::int64_t> rank_to_node;
  std::vector<MemoryPlan> memory_of_rank;
  std::vector<std::int64_t> free_of_rank;
  std::int64_t kv_tokens_per_rank = 0;
  std::int64_t max_context = 0;
};
void print_start_table(const StartTable& table, std::FILE* out);

// One line that overwrites itself on a terminal; elsewhere a plain line per interval.
class Progress {
 public:
  explicit Progress(std::FILE* out);
  // requests_read: accepted so far; it is the total once `input_ended`.
  void update(const RunStatistics& statistics, std::int64_t num_running, std::int64_t requests_read, bool input_ended);
  void finish();

 private:
  std::FILE* out_;
  bool terminal_;
  double interval_s_;
  double last_s_ = 0.0;
  bool shown_ = false;
};

struct Summary {
  const RunStatistics* statistics = nullptr;
  const ActivationStatistics* activation = nullptr;
  std::int64_t num_rejected = 0;
  double load_s = 0.0;
  std::int64_t bytes_read_max = 0, bytes_read_sum = 0;  // of the checkpoint, over ranks
  std::int64_t bytes_sent_max = 0, bytes_sent_sum = 0;  // over ranks
  std::string output_directory;
};
void print_summary(const Summary& summary, std::FILE* out);

}  // namespace metro
