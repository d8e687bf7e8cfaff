// Multi-head latent attention. Cached of a token and layer are its latent and the rotated part of its keys, once for
// all heads. Positions behind the prompt are computed in the absorbed form, which reads nothing else; those of the
// prompt in the expanded form, which makes keys and values of some heads at a time from the latents of their sequence,
// for many rows at once. Which form a position has depends on nothing else, so that its bits do not either.
#pragma once

#include "decoder/attention.hpp"
#include "kernels/buffer.hpp"
#include "kernels/latent_attention.hpp"
#include "kernels/mirror.hpp"

#include <cstdint>
#include <vector>

namespace metro {

class LatentAttention : public Attention {
 public:
  LatentAttention(const ModelSpec& spec, const RopeTable& rope, const DecoderLimits& limits);

  void begin_step(const RowBatch& batch) override;
  void run(std::int64_t layer, const DenseLayer& weights, const AttentionRows& rows, float* residual) override;

  std::int64_t kv_bytes() const override { return cache_.num_bytes(); }
  std::int64_t num_scratch_bytes() const override;
  static std::int64_t planned_scratch_bytes(const ModelSpec& spec, const DecoderLimits& limits);

 private:
  // How much is done at a time, so that scratch stays bounded.
  struct Sizes {
    std::int64_t absorbed_rows = 1;        // rows whose queries are in the space of latents
    std::int64_t absorbed_score_rows = 1;  // of those, whose scores are
    std::int64_t heads = 1;                // heads whose keys and values are expanded
    std::int64_t keys = 1;                 // positions whose keys and values are
    std::int64_t latents = 1;              // positions whose latents are, on the way there
    std::int64_t expanded_score_rows = 1;  // rows whose scores with those heads are
    std::int64_t tile_rows = 1;            // of those, that one work item takes
    std::int64_t num_scores = 0;           // floats
    std::int64_t head_floats = 0;          // of an expanded head of a position, keys and values
  };
  static Sizes sizes_of(const ModelSpec& spec, const DecoderLimits& limits);

  // Rows side by side that are neighbouring positions of one sequence.
  struct Run {
    std::int64_t first_row = 0, num_rows = 0;
    std::int32_t sequence = 0, first_position = 0;
    bool is_generated = false;
    std::int64_t num_keys() const { return first_position + num_rows; }
  };
  // Rows side by side that are computed in one form.
  struct Piece {
    bool is_absorbed = true;
    std::int64_t first_row = 0, num_rows = 0;
    std::vector<Run> runs;  // of the expanded form
    std::int64_t first_tile = 0, num_tiles = 0;
  };
  static std::vector<Run> runs_of(const RowBatch& batch);
  void add_tiles(Piece& piece);

  void project(const DenseLayer& weights, const AttentionRows& rows, const float* residual, const LatentCache& cache);
  void attend_absorbed(const LatentWeights& weights, AttentionRows rows, const LatentCache& cache,
                       std::int64_t first_row);
  void attend_expanded(const LatentWeights& weights, const AttentionRows& rows, const LatentCache& cache,
                       const Piece& piece);
  void expand(const LatentWeights& weights, const AttentionRows& rows, const LatentCache& cache, const Piece& piece,
              std::int64_t first_head, std::int64_t num_heads);
  LatentQueries queries_of(const float* plain, std::int64_t plain_row, std::int64_t plain_head, std::int64_t first_row,
                           std::int64_t first_head) const;

  const ModelSpec* spec_;
  const RopeTable* rope_;
  DecoderLimits limits_;
  LatentSpec latent_;
  Sizes sizes_;
  bool all_absorbed_ = true;       // rows of the step, padding included
  std::vector<Piece> pieces_;      // else those
  Buffer<float> cache_;            // [num_layers, kv_blocks, block_tokens, kv_rank + rope_dim]
  Buffer<float> normed_;           // [max_rows, H]
  Buffer<float> q_latents_;        // [max_rows, query_rank]
  Buffer<float> q_;                // [max_rows, num_heads, nope_dim + rope_dim]
  Buffer<float> latents_;          // [max_rows, kv_rank]
  Buffer<float> rotated_keys_;     // [max_rows, rope_dim]
  Buffer<float> attended_;         // [max_rows, num_heads, value_dim]
  Buffer<float> projected_;        // [max_rows, H]
  Buffer<float> absorbed_;         // [sizes_.absorbed_rows, num_heads, kv_rank] queries
  Buffer<float> weighted_;         // likewise, weighted sums of latents
  Buffer<float> context_latents_;  // [sizes_.latents, kv_rank]
  Buffer<float> expanded_;         // [sizes_.keys, sizes_.heads, sizes_.head_floats]
  Buffer<float> scores_;           // [sizes_.num_scores]
  Mirror<QueryTile> tiles_;        // [max_rows]
  std::int64_t num_tiles_ = 0;
};

}  // namespace metro
