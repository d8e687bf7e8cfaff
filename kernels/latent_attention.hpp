// Multi-head latent attention: all heads of a token share one cached row, its latent and the rotated part of its keys.
// Keys and values of a head are linear in the latent, so that there are two forms of the same sum:
//   absorbed  queries are taken into the space of latents; keys are the cached rows, and values their latents
//   expanded  keys and values of some heads have been made of the latents before
#pragma once

#include "kernels/attention.hpp"
#include "kernels/head_linear.hpp"

#include <cstdint>

namespace metro {

// Cache of one layer, fp32.
struct LatentCache {
  float* tokens = nullptr;  // [num_blocks, block_tokens, kv_rank + rope_dim]: latent, then rotated part of the key
  std::int64_t block_tokens = 0;
  std::int64_t kv_rank = 0;
  std::int64_t rope_dim = 0;
};

// Stores latents [num_rows, kv_rank] and rotated keys [num_rows, rope_dim] at the rows' positions.
void write_latents(const float* latents, const float* rotated, const AttentionRows& rows, const LatentCache& cache);

// latents [num_keys, kv_rank] = those of positions first_key .. first_key + num_keys - 1 of row `sequence` of the block
// tables.
void read_latents(const LatentCache& cache, const AttentionRows& rows, std::int64_t sequence, std::int64_t first_key,
                  std::int64_t num_keys, float* latents);

// Queries in two parts: one that meets what was made of latents, and the rotated one [rope_dim].
struct LatentQueries {
  HeadInputs plain;
  HeadInputs rotated;
  std::int64_t num_heads = 0;
  float scale = 1.0F;  // of scores
};

// Room for scores: `data` has latent_scratch_floats(rows, num_heads, max_context) floats.
struct ScoreScratch {
  float* data = nullptr;
  std::int64_t max_context = 0;  // positions lie below it
};
std::int64_t latent_scratch_floats(std::int64_t num_rows, std::int64_t num_heads, std::int64_t max_context);

// out[r, h, :] = sum_j softmax_j(scale * (plain . latent_j + rotated . rotated_j)) latent_j over positions j = 0 ..
// positions[r] of the row's sequence; queries.plain has kv_rank elements. out [num_rows, num_heads, kv_rank]; padding
// gives zeros. The order of every sum is that of attention(), the plain part of a score before the rotated one.
void absorbed_attention(const LatentQueries& queries, const AttentionRows& rows, const LatentCache& cache,
                        const ScoreScratch& scratch, float* out);

// Rows side by side that are neighbouring positions of one sequence: row first_row + i is position first_position + i.
struct QueryTile {
  std::int32_t first_row = 0;
  std::int32_t num_rows = 0;
  std::int32_t first_position = 0;
  std::int32_t sequence = 0;   // row of block_tables
  std::int32_t first_key = 0;  // row of ExpandedKeys that is position 0 of the sequence
};

// Tiles of rows [num_tiles], memory of kernels; their rows follow each other without a gap.
struct QueryTiles {
  const QueryTile* tiles = nullptr;
  std::int64_t num_tiles = 0;
  std::int64_t first_row = 0;  // of the first tile
};

// Keys (without the rotated part) and values of the heads at all positions of some sequences.
struct ExpandedKeys {
  const float* keys = nullptr;    // [positions, num_heads, key_stride], of which key_dim count
  const float* values = nullptr;  // [positions, num_heads, value_stride], of which value_dim count
  std::int64_t key_dim = 0, key_stride = 0;
  std::int64_t value_dim = 0, value_stride = 0;
};

// The same with the keys and values of `expanded`, for the rows of the tiles; queries.plain has key_dim elements.
// Result d of head h of row r goes to out[r * out_row_stride + h * value_dim + d]. Of `rows` the block tables count.
// Bits do not depend on how rows are cut into tiles; large tiles read less.
void expanded_attention(const LatentQueries& queries, const QueryTiles& tiles, const AttentionRows& rows,
                        const LatentCache& cache, const ExpandedKeys& expanded, const ScoreScratch& scratch, float* out,
                        std::int64_t out_row_stride);

}  // namespace metro
