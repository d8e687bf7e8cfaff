// What is recorded of a run, on rank 0: of every step, of every request, of the run as a whole. metrics.h5 holds these
// records (docs/formats.md), the summary is made from them, in the running job as well as later from the file.
#pragma once

#include "model/model_spec.hpp"
#include "placement/placement.hpp"
#include "report/phases.hpp"
#include "requests/sampled_token.hpp"
#include "requests/scheduler.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metro {

// Activated experts of one MoE layer in one decode step.
struct LayerActivation {
  std::int32_t active = 0;     // distinct experts with rows
  std::int32_t lambda = 0;     // activated on the busiest rank
  std::int32_t activated = 0;  // summed over ranks
  std::int32_t optimum = 0;    // the least lambda that any routing could reach
};

// Times are seconds since the first step was planned.
struct StepMetrics {
  StepKind kind = StepKind::decode;
  std::int32_t rows = 0;                // token rows of all ranks
  std::int32_t sequences = 0;           // that have rows in this step
  double begin_s = 0.0;                 // when it was planned
  float seconds = 0.0F;                 // from there until rank 0 knew the tokens of all ranks
  PhaseSeconds phases;                  // of all ranks, from reading requests to writing completions
  std::int64_t bytes_sent = 0;          // by all ranks to other ranks
  std::vector<LayerActivation> layers;  // [num_moe_layers] in decode, empty in prefill
};

struct RequestMetrics {
  std::int64_t id = 0;  // consecutive over accepted requests, in input order
  std::string custom_id;
  std::int32_t prompt_tokens = 0;
  std::int32_t generated_tokens = 0;  // in this part of the run
  FinishReason finish_reason = FinishReason::none;
  double first_step_s = 0.0;  // its first prefill step was planned
  double first_token_s = 0.0, last_token_s = 0.0;
  std::optional<double> arrival_s;  // nothing: it was there at once
};

// A change of placement between two steps.
struct RebalanceMetrics {
  std::int64_t step = 0;  // the first step that is routed by the new placement
  double begin_s = 0.0;
  double seconds = 0.0;                         // until the last rank had all its experts
  std::int64_t slots_moved = 0;                 // that hold another expert than before, over all MoE layers
  std::int64_t experts_fetched = 0;             // whose weights came to a rank, over all MoE layers and ranks
  std::int64_t bytes_sent = 0, bytes_read = 0;  // by all ranks: to other ranks, of the checkpoint
  double balance_before = 0.0;                  // mean / max of the rows of ranks, mean over MoE layers, as the rows
  double balance_after = 0.0;                   // since the last change would be shared out by either placement
  std::vector<std::int32_t> slot_to_expert;     // the new placement, [num_moe_layers, num_ranks * slots_per_rank]
};

// What a rank may use of its node: how its launcher bound it.
struct RankBinding {
  std::string cpus;         // as Linux writes it, "0-3,8"
  std::string gpus;         // CUDA_VISIBLE_DEVICES; empty: not set
  std::string cores;        // the cores of the CPUs, each by the lowest of its CPUs; empty: not known
  std::string device = {};  // that it computes on, "0 NVIDIA H200 0000:17:00.0, 139.8 GiB"; empty: on its CPUs
};

// What is known before the first step.
struct RunIdentity {
  std::string build;     // program and build
  std::string software;  // libraries
  std::string started;   // UTC, "2025-01-31T12:00:00Z"
  std::string deck;      // the resolved deck as TOML
  std::string checkpoint, checkpoint_digest;
  std::string transport;
  std::string decode_policy, prefill_policy, placement_name;
  std::string decode_exchange;  // what was agreed on, for people
  ModelSpec spec;               // without end tokens when it comes from a file
  Placement placement;
  std::vector<std::string> rank_to_host;
  std::vector<std::int64_t> rank_to_node;
  std::int64_t threads_per_rank = 1;
  std::vector<RankBinding> rank_to_binding;  // empty: not known
  std::string shard = "0/1";                 // requests.shard
};

// What is known after the last step.
struct RunTotals {
  double load_s = 0.0;                            // before the first step
  double run_s = 0.0;                             // from the first step to the end
  std::int64_t num_lines = 0, num_own_lines = 0;  // not blank: of the input as far as it was read, of this shard
  std::int64_t num_rejected = 0;
  std::int64_t num_repeated_ids = 0;                    // lines with the custom_id of an earlier one
  std::int64_t bytes_read_max = 0, bytes_read_sum = 0;  // of the checkpoint, over ranks
  std::int64_t bytes_sent_max = 0, bytes_sent_sum = 0;  // over ranks
  std::vector<PromptTokens> prompt_of_rank;             // [num_ranks]; empty: not known
};

}  // namespace metro
