// The attention half of a layer, for this rank's own rows: norm, projections, RoPE, cache, attention, residual. One
// interface for grouped-query attention (AttentionStep) and latent attention (LatentAttention).
#pragma once

#include "decoder/dense_weights.hpp"
#include "decoder/rope_table.hpp"
#include "decoder/row_batch.hpp"
#include "kernels/attention.hpp"
#include "model/model_spec.hpp"

#include <cstdint>
#include <memory>

namespace metro {

class Attention {
 public:
  virtual ~Attention() = default;

  // What a step is about to compute, before its first layer; kernels of the step before have ended.
  virtual void begin_step(const RowBatch& batch) = 0;

  // residual [num_rows, H] += attention of layer `layer`; what the rows leave for later ones goes into the cache. Rows
  // are those of the batch, with padding behind them in decode steps. All is memory of kernels.
  virtual void run(std::int64_t layer, const DenseLayer& weights, const AttentionRows& rows, float* residual) = 0;

  virtual std::int64_t kv_bytes() const = 0;
  virtual std::int64_t num_scratch_bytes() const = 0;
};

// The one that the model has. Allocates the cache and all scratch. `spec` and `rope` must outlive it.
std::unique_ptr<Attention> make_attention(const ModelSpec& spec, const RopeTable& rope, const DecoderLimits& limits);

// What it will hold.
std::int64_t kv_bytes_per_block(const ModelSpec& spec, std::int64_t block_tokens);         // of all layers
std::int64_t planned_attention_bytes(const ModelSpec& spec, const DecoderLimits& limits);  // scratch

}  // namespace metro
