// RoPE, the paged KV cache, and causal attention with grouped query heads.
#pragma once

#include "base/model_forms.hpp"

#include <cstdint>

namespace metro {

// KV cache of one layer, fp32, in blocks of block_tokens positions. Keys lie with positions side by side, so that
// scores are vectorised over keys.
struct KvLayer {
  float* keys = nullptr;    // [num_blocks, num_kv_heads, head_dim, block_tokens]
  float* values = nullptr;  // [num_blocks, num_kv_heads, block_tokens, head_dim]
  std::int64_t block_tokens = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
};

// Which token each row is. Row r is position positions[r] of the sequence with block table block_tables[sequences[r],
// :]. A negative position is padding: write_kv() leaves such a row alone, attention() gives zeros for it.
struct AttentionRows {
  std::int64_t num_rows = 0;
  const std::int32_t* positions = nullptr;     // [num_rows]
  const std::int32_t* sequences = nullptr;     // [num_rows], row of block_tables
  const std::int32_t* block_tables = nullptr;  // [num_sequences, max_blocks]
  std::int64_t max_blocks = 0;
  const std::int32_t* rope_rows = nullptr;  // [num_rows] rows of the tables of rope(): where there is one, positions
};

// What rope() rotates: `dims` elements side by side of each head of a row.
struct RopedHeads {
  std::int64_t num_heads = 0;
  std::int64_t dims = 0;
  RopePairs pairs = RopePairs::halves;
  std::int64_t head_stride = 0;  // floats from one head to the next; 0: dims
  std::int64_t row_stride = 0;   // floats from one row to the next; 0: all heads of a row
};

// Rotates pairs (i, i + dims / 2) or (2i, 2i + 1) of every head of the rows of x in place, pair i by the angles of
// cos, sin [table rows, dims / 2] at table_rows [num_rows]; a row at a negative place is left alone. Products and sums
// are separate roundings.
void rope(float* x, const std::int32_t* table_rows, std::int64_t num_rows, const RopedHeads& heads, const float* cos,
          const float* sin);

// Stores k, v [num_rows, num_kv_heads * head_dim] at the rows' positions.
void write_kv(const float* k, const float* v, const AttentionRows& rows, const KvLayer& cache);

// Floats of scratch that attention() needs for num_rows rows whose positions are below max_context.
std::int64_t attention_scratch_floats(std::int64_t num_rows, std::int64_t num_heads, std::int64_t max_context);

// What a model's attention makes of scores.
struct AttentionForm {
  float scale = 1.0F;       // scores are multiplied by it
  std::int64_t window = 0;  // newest keys that a query sees, its own among them; 0: all
  // [num_heads] a score of each query head that has no key: it counts in the maximum and in the sum of the softmax.
  // Memory of kernels; nullptr: there are none.
  const float* sinks = nullptr;
};

// out[r, h, :] = sum_j softmax_j(scale * q . k_j) v_j over keys j = first .. positions[r] of the row's own sequence
// (their K and V are already in the cache), first being 0, or what the window leaves of them. Blocks before that of
// `first` are not read. q, out [num_rows, num_heads * head_dim]. Bits depend on the row's query, keys and values only,
// never on where blocks begin: scores by fma in ascending dimension, softmax sum in 16 partial sums (key first + i to
// partial i mod 16) joined by a fixed tree, the sink's term added to that, output by fma in ascending key, then one
// division.
void attention(const float* q, const AttentionRows& rows, const KvLayer& cache, std::int64_t num_heads,
               const AttentionForm& form, std::int64_t max_context, float* scratch, float* out);

}  // namespace metro
