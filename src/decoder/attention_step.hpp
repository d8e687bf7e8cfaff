// Grouped-query attention: keys and values of every KV head are cached.
#pragma once

#include "decoder/attention.hpp"
#include "kernels/buffer.hpp"

#include <cstdint>

namespace metro {

class AttentionStep : public Attention {
 public:
  AttentionStep(const ModelSpec& spec, const RopeTable& rope, const DecoderLimits& limits);

  void begin_step(const RowBatch& /*all of a step is alike*/) override {}
  void run(std::int64_t layer, const DenseLayer& weights, const AttentionRows& rows, float* residual) override;

  std::int64_t kv_bytes() const override { return keys_.num_bytes() + values_.num_bytes(); }
  std::int64_t num_scratch_bytes() const override;
  static std::int64_t planned_scratch_bytes(const ModelSpec& spec, const DecoderLimits& limits);

 private:
  // Score scratch grows with rows * context; rows are taken in slabs that keep it below this.
  static constexpr std::int64_t max_score_bytes = std::int64_t{32} << 20;
  static std::int64_t rows_per_slab(const ModelSpec& spec, const DecoderLimits& limits);
  void norm_and_clip(const DenseLayer& weights, std::int64_t num_rows);
  void attend(const AttentionForm& form, AttentionRows rows, const KvLayer& cache);

  const ModelSpec* spec_;
  const RopeTable* rope_;
  DecoderLimits limits_;
  std::int64_t slab_rows_;
  Buffer<float> keys_, values_;  // [num_layers, kv_blocks, ...], blocks as in KvLayer
  Buffer<float> normed_;         // [max_rows, H]
  Buffer<float> q_, k_, v_;      // [max_rows, query_width], [max_rows, kv_width]
  Buffer<float> attended_;       // [max_rows, query_width]
  Buffer<float> projected_;      // [max_rows, H]
  Buffer<float> scores_;         // scratch of attention()
};

}  // namespace metro
