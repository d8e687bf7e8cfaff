// The forward pass: token ids in, logits out. One object per rank; forward() is one step of all ranks in lockstep.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "decoder/attention.hpp"
#include "decoder/dense_weights.hpp"
#include "decoder/expert_mover.hpp"
#include "decoder/expert_store.hpp"
#include "decoder/moe_step.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/rope_table.hpp"
#include "decoder/row_batch.hpp"
#include "decoder/step_graphs.hpp"
#include "decoder/step_inputs.hpp"
#include "placement/placement.hpp"
#include "transport/device_exchange.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace metro {

// Memory of a rank, in bytes.
struct MemoryPlan {
  std::int64_t dense = 0;    // replicated tensors and the RoPE table; of what ranks share, this rank's part
  std::int64_t experts = 0;  // packed experts of the rank's slots; if they are movable, of as many experts as slots
  std::int64_t kv = 0;       // KV cache
  std::int64_t buffers = 0;  // activations and exchange
  std::int64_t total() const { return dense + experts + kv + buffers; }
};

// What all ranks hold alike.
struct ReplicatedTensors {
  // Collective. Loads and makes them; throws AgreedError.
  ReplicatedTensors(const WeightReader& checkpoint, std::int64_t max_context, Sharing sharing, Transport& transport);

  DenseWeights dense;
  RopeTable rope;
};

class Decoder {
 public:
  // Reads this rank's experts from `checkpoint` and allocates everything a step needs. replicated: of `checkpoint` and
  // limits.max_context. `checkpoint` and `exchange` must outlive it. Local.
  Decoder(const WeightReader& checkpoint, ReplicatedTensors replicated, const Placement& placement,
          const RoutingSettings& routing, DeviceExchange& exchange, const DecoderLimits& limits);

  // Collective, also for ranks without rows. Returns logits [batch.sampled_rows.size(), vocab_size] of this rank's
  // sampled rows, memory of kernels, valid until the next call. `observer` may be null.
  const float* forward(const RowBatch& batch, StepObserver* observer);

  // Logits [rows.size(), vocab_size] of rows of the last forward(), at most max_sampled_rows of them; in place of those
  // that were there before. Waits for the kernels. Local.
  const float* logits_of(std::span<const std::int32_t> rows);

  // Between two steps, with limits.movable_experts. Collective, the same arguments on all ranks: fetches the experts
  // that this rank lacks for `next`, a placement of the same shape, and routes by it from the next step on. Returns the
  // number of experts that this rank fetched. Throws what ExpertMover::move() throws.
  std::int64_t switch_placement(const Placement& next, WeightSource source);
  const Placement& placement() const { return placement_; }
  // Between two steps. Local; the same on all ranks.
  void switch_routing(const RoutingSettings& routing);
  // Collective, with limits.movable_experts; see ExpertMover.
  SourceTimes measure_sources();
  // Of the checkpoint, by this rank so far.
  std::int64_t bytes_read() const { return checkpoint_->bytes_read(); }

  Decoder(const Decoder&) = delete;  // its parts point to each other
  Decoder& operator=(const Decoder&) = delete;

  // Why decode goes on without graphs although limits.listed asked for them; empty: it does not. The same on all ranks.
  const std::string& why_no_graphs() const { return graphs_.why_not(); }

  // Adds the laps of forward(): compute, routing, dispatch, experts, combine. Start it, or take a lap, before
  // forward().
  PhaseClock& clock() { return clock_; }

  // Memory that this object holds; equal to what plan_memory_of_ranks() says of this rank.
  MemoryPlan memory() const;

 private:
  const float* forward_listed(ListedDecode& listed, const RowBatch& batch, StepObserver* observer);
  const float* compute_logits();

  const WeightReader* checkpoint_;
  const ModelSpec* spec_;
  PhaseClock clock_;
  ReplicatedTensors replicated_;
  Placement placement_;
  ResidentExpertStore experts_;
  std::optional<ExpertMover> mover_;  // if experts are movable
  StepInputs inputs_;
  std::unique_ptr<Attention> attention_;
  MoeStep moe_;
  StepGraphs graphs_;
  Buffer<float> residual_;  // [max_rows, H]
  Buffer<float> sampled_;   // [max_sampled_rows, H]
  Buffer<float> logits_;    // [max_sampled_rows, vocab]
};

// Memory that the Decoder of every rank will hold, without loading anything. sharers_of_rank [num_ranks]: ranks that
// share replicated tensors with it, itself included. [num_ranks]
std::vector<MemoryPlan> plan_memory_of_ranks(const WeightReader& checkpoint, const Placement& placement,
                                             const DecoderLimits& limits,
                                             std::span<const std::int64_t> sharers_of_rank);

}  // namespace metro
