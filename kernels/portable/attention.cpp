// RoPE, the KV cache, and attention: one work item per row and KV head, for all query heads that share it.
#include "kernels/attention.hpp"

#include "base/error.hpp"
#include "kernels/portable/head_product.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"

#include <string>

namespace metro {

namespace {

using namespace portable;

// Scores of one head, padded to whole lanes, and one float for the sum of its exponentials.
constexpr std::int64_t scores_per_head(std::int64_t max_context) {
  return (max_context + num_partials - 1) / num_partials * num_partials + num_partials;
}

struct AttentionItems {
  const float* q;
  AttentionRows rows;
  KvLayer cache;
  std::int64_t num_heads;
  float scale;
  std::int64_t scores_stride;
  float* scratch;
  float* out;

  // The block that holds the row's positions block_idx * block_tokens and on, of one KV head.
  KOKKOS_INLINE_FUNCTION std::int64_t block_offset(std::int64_t row, std::int64_t block_idx,
                                                   std::int64_t kv_head) const {
    const std::int64_t block = rows.block_tables[rows.sequences[row] * rows.max_blocks + block_idx];
    return (block * cache.num_kv_heads + kv_head) * cache.head_dim * cache.block_tokens;
  }

  // Keys of the last block beyond the context are multiplied too where that completes a register; their scores are
  // never read.
  KOKKOS_INLINE_FUNCTION std::int64_t columns_of(std::int64_t tokens) const {
    constexpr std::int64_t whole = 16;
    return cache.block_tokens % whole == 0 ? (tokens + whole - 1) / whole * whole : tokens;
  }

  KOKKOS_INLINE_FUNCTION void softmax(const Team& team, float* scores, std::int64_t context) const {
    const float factor = scale;
    const float top = largest(team, context, [=](std::int64_t j) { return factor * scores[j]; });
    const float sum = sum_in_partials(team, context, [=](std::int64_t j, float partial) {
      const float e = exp_of(factor * scores[j] - top);
      scores[j] = e;
      return partial + e;
    });
    if (team.rank() == 0) {
      scores[scores_stride - 1] = sum;
    }
  }

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t row = item / cache.num_kv_heads;
    const std::int64_t kv_head = item % cache.num_kv_heads;
    const std::int64_t group = num_heads / cache.num_kv_heads;
    const std::int64_t head_dim = cache.head_dim;
    const std::int64_t block_tokens = cache.block_tokens;
    const std::int64_t context = std::int64_t{rows.positions[row]} + 1;
    const std::int64_t first_head = row * num_heads + kv_head * group;
    float* scores = scratch + first_head * scores_stride;
    float* result = out + first_head * head_dim;

    const std::int64_t num_blocks = (context + block_tokens - 1) / block_tokens;
    for (std::int64_t block = 0; block < num_blocks; ++block) {
      const std::int64_t first = block * block_tokens;
      const std::int64_t tokens = context - first < block_tokens ? context - first : block_tokens;
      const float* next = block + 1 < num_blocks ? cache.keys + block_offset(row, block + 1, kv_head)
                                                 : cache.values + block_offset(row, 0, kv_head);
      multiply_heads(team, {group,
                            head_dim,
                            columns_of(tokens),
                            {q + first_head * head_dim, head_dim},
                            {cache.keys + block_offset(row, block, kv_head), block_tokens},
                            scores + first,
                            scores_stride,
                            true,
                            next});
    }
    team.barrier();
    for (std::int64_t head = 0; head < group; ++head) {
      softmax(team, scores + head * scores_stride, context);
    }
    team.barrier();
    for (std::int64_t block = 0; block < num_blocks; ++block) {
      const std::int64_t first = block * block_tokens;
      const std::int64_t tokens = context - first < block_tokens ? context - first : block_tokens;
      const float* next = block + 1 < num_blocks ? cache.values + block_offset(row, block + 1, kv_head) : nullptr;
      multiply_heads(team, {group,
                            tokens,
                            head_dim,
                            {scores + first, scores_stride},
                            {cache.values + block_offset(row, block, kv_head), head_dim},
                            result,
                            head_dim,
                            block == 0,
                            next});
    }
    team.barrier();
    for (std::int64_t head = 0; head < group; ++head) {
      const float sum = scores[head * scores_stride + scores_stride - 1];
      float* values = result + head * head_dim;
      for_each_element(team, head_dim, [=](std::int64_t d) { values[d] = values[d] / sum; });
    }
  }
};

void require_rows(const char* kernel, const AttentionRows& rows, const KvLayer& cache) {
  require_kernel_memory(kernel, {{"positions", rows.positions},
                                 {"sequences", rows.sequences},
                                 {"block_tables", rows.block_tables},
                                 {"keys", cache.keys},
                                 {"values", cache.values}});
}

// Keys and values that all rows attend to. On a device positions cannot be read here, and nobody asks.
std::int64_t bytes_of_cache(const AttentionRows& rows, const KvLayer& cache) {
  std::int64_t num_keys = 0;
  for (std::int64_t row = 0; row < rows.num_rows && !device_form; ++row) {
    num_keys += rows.positions[row] + 1;
  }
  return num_keys * 2 * cache.num_kv_heads * cache.head_dim * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

void rope(float* x, const std::int32_t* positions, std::int64_t num_rows, std::int64_t num_heads, std::int64_t head_dim,
          const float* cos, const float* sin) {
  METRO_REQUIRE(head_dim % 2 == 0, std::to_string(head_dim));
  require_kernel_memory("rope", {{"x", x}, {"positions", positions}, {"cos", cos}, {"sin", sin}});
  const std::int64_t half = head_dim / 2;
  for_each_team(
      "rope", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* row_cos = cos + positions[row] * half;
        const float* row_sin = sin + positions[row] * half;
        for (std::int64_t head = 0; head < num_heads; ++head) {
          float* first = x + (row * num_heads + head) * head_dim;
          float* second = first + half;
          for_each_element(team, half, [=](std::int64_t i) {
            const float a = first[i];
            const float b = second[i];
            first[i] = a * row_cos[i] - b * row_sin[i];
            second[i] = b * row_cos[i] + a * row_sin[i];
          });
        }
      });
}

void write_kv(const float* k, const float* v, const AttentionRows& rows, const KvLayer& cache) {
  METRO_REQUIRE(rows.num_rows == 0 || cache.block_tokens > 0, std::to_string(cache.block_tokens));
  require_rows("write_kv", rows, cache);
  require_kernel_memory("write_kv", {{"k", k}, {"v", v}});
  const std::int64_t head_dim = cache.head_dim;
  const std::int64_t block_tokens = cache.block_tokens;
  for_each_team(
      "write_kv", rows.num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const std::int64_t token = rows.positions[row] % block_tokens;
        const std::int64_t block_idx = rows.positions[row] / block_tokens;
        const std::int64_t block = rows.block_tables[rows.sequences[row] * rows.max_blocks + block_idx];
        for (std::int64_t head = 0; head < cache.num_kv_heads; ++head) {
          const std::int64_t source = (row * cache.num_kv_heads + head) * head_dim;
          const std::int64_t begin = (block * cache.num_kv_heads + head) * head_dim * block_tokens;
          float* keys = cache.keys + begin + token;
          float* values = cache.values + begin + token * head_dim;
          for_each_element(team, head_dim, [=](std::int64_t d) {
            keys[d * block_tokens] = k[source + d];
            values[d] = v[source + d];
          });
        }
      });
}

std::int64_t attention_scratch_floats(std::int64_t num_rows, std::int64_t num_heads, std::int64_t max_context) {
  return num_rows * num_heads * scores_per_head(max_context);
}

void attention(const float* q, const AttentionRows& rows, const KvLayer& cache, std::int64_t num_heads, float scale,
               std::int64_t max_context, float* scratch, float* out) {
  METRO_REQUIRE(cache.block_tokens > 0, std::to_string(cache.block_tokens));
  METRO_REQUIRE(cache.num_kv_heads > 0 && num_heads % cache.num_kv_heads == 0,
                std::to_string(num_heads) + " heads over " + std::to_string(cache.num_kv_heads));
  require_rows("attention", rows, cache);
  require_kernel_memory("attention", {{"q", q}, {"scratch", scratch}, {"out", out}});
  for_each_team("attention", rows.num_rows * cache.num_kv_heads,
                AttentionItems{q, rows, cache, num_heads, scale, scores_per_head(max_context), scratch, out},
                bytes_of_cache(rows, cache));
}

}  // namespace metro
