// Attention of a group of queries that share their keys: scores, softmax, weighted values. Keys lie position by
// position, in two parts. Called by all threads of a team.
//   score of query i and key j   plain_i . plain_j, then + rotated_i . rotated_j, by fma in ascending dimension
//   softmax                      sum in 16 partial sums, as in attention.cpp
//   result                       by fma in ascending key, then one division
#pragma once

#include "kernels/latent_attention.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"
#if !METRO_DEVICE_FORM
#include "kernels/cpu/head_product.hpp"
#include "kernels/cpu/row_tiles.hpp"
#endif

#include <cstdint>

namespace metro::portable {

// Positions whose keys are transposed at a time on a host; scores are padded to whole ones.
inline constexpr std::int64_t keys_at_once = 32;

// Scores of one query, and the sum of their exponentials last.
KOKKOS_INLINE_FUNCTION constexpr std::int64_t floats_of_scores(std::int64_t max_context) {
  return (max_context + keys_at_once - 1) / keys_at_once * keys_at_once + num_partials;
}

struct SharedDims {
  std::int64_t plain, rotated, value;
};

// Query i sees the keys of the first context_of(i) positions.
struct QueryGroup {
  std::int64_t count;
  const float* plain;
  std::int64_t plain_stride;
  const float* rotated;
  std::int64_t rotated_stride;
  std::int64_t first_context;
  std::int64_t more_context;  // of every query than of the one before: 0 or 1
  float* scores;
  std::int64_t scores_stride;
  float* results;
  std::int64_t results_stride;

  KOKKOS_INLINE_FUNCTION std::int64_t context_of(std::int64_t i) const { return first_context + i * more_context; }
  KOKKOS_INLINE_FUNCTION std::int64_t last_context() const { return context_of(count - 1); }
};

// Floats of a token in the cache.
KOKKOS_INLINE_FUNCTION std::int64_t token_width(const LatentCache& cache) {
  return cache.kv_rank + cache.rope_dim;
}

// Where the token at `position` of a sequence with those blocks lies.
KOKKOS_INLINE_FUNCTION float* token_at(const LatentCache& cache, const std::int32_t* blocks, std::int64_t position) {
  const std::int64_t block = blocks[position / cache.block_tokens];
  return cache.tokens + (block * cache.block_tokens + position % cache.block_tokens) * token_width(cache);
}

// Rows of keys and values of a sequence, by position.
struct KeyRows {
  LatentCache cache;
  const std::int32_t* blocks;  // of the sequence
  const float* keys;           // at keys + j * key_stride, or nullptr: the cached latents
  std::int64_t key_stride;
  const float* values;  // likewise
  std::int64_t value_stride;

  KOKKOS_INLINE_FUNCTION const float* cached(std::int64_t j) const { return token_at(cache, blocks, j); }
  KOKKOS_INLINE_FUNCTION const float* plain(std::int64_t j) const {
    return keys == nullptr ? cached(j) : keys + j * key_stride;
  }
  KOKKOS_INLINE_FUNCTION const float* rotated(std::int64_t j) const { return cached(j) + cache.kv_rank; }
  KOKKOS_INLINE_FUNCTION const float* value(std::int64_t j) const {
    return values == nullptr ? cached(j) : values + j * value_stride;
  }
  // Positions from j on, below `end`, that lie side by side in the cache.
  KOKKOS_INLINE_FUNCTION std::int64_t cached_run(std::int64_t j, std::int64_t end) const {
    const std::int64_t left = cache.block_tokens - j % cache.block_tokens;
    return left < end - j ? left : end - j;
  }
};

#if METRO_DEVICE_FORM

// Queries for which a thread uses a key or value that it has read.
inline constexpr std::int64_t queries_at_once = 4;

// A key per thread.
KOKKOS_INLINE_FUNCTION void score_shared(const Team& team, const SharedDims& dims, const QueryGroup& group,
                                         const KeyRows& rows) {
  const std::int64_t last = group.count - 1;
  for (std::int64_t key = team.rank(); key < group.last_context(); key += team.size()) {
    const float* plain = rows.plain(key);
    const float* rotated = rows.rotated(key);
    for (std::int64_t first = 0; first < group.count; first += queries_at_once) {
      float sums[queries_at_once] = {};
      for (std::int64_t d = 0; d < dims.plain; ++d) {
        for (std::int64_t i = 0; i < queries_at_once; ++i) {
          const std::int64_t query = first + i < last ? first + i : last;
          sums[i] = fused(group.plain[query * group.plain_stride + d], plain[d], sums[i]);
        }
      }
      for (std::int64_t d = 0; d < dims.rotated; ++d) {
        for (std::int64_t i = 0; i < queries_at_once; ++i) {
          const std::int64_t query = first + i < last ? first + i : last;
          sums[i] = fused(group.rotated[query * group.rotated_stride + d], rotated[d], sums[i]);
        }
      }
      for (std::int64_t i = 0; i < queries_at_once && first + i < group.count; ++i) {
        group.scores[(first + i) * group.scores_stride + key] = sums[i];
      }
    }
  }
}

// A dimension per thread, over all keys in ascending order.
KOKKOS_INLINE_FUNCTION void weigh_shared(const Team& team, const SharedDims& dims, const QueryGroup& group,
                                         const KeyRows& rows, std::int64_t sum_at) {
  const std::int64_t last = group.count - 1;
  for (std::int64_t d = team.rank(); d < dims.value; d += team.size()) {
    for (std::int64_t first = 0; first < group.count; first += queries_at_once) {
      float sums[queries_at_once] = {};
      for (std::int64_t key = 0; key < group.last_context(); ++key) {
        const float value = rows.value(key)[d];
        for (std::int64_t i = 0; i < queries_at_once; ++i) {
          const std::int64_t query = first + i < last ? first + i : last;
          const float longer = fused(group.scores[query * group.scores_stride + key], value, sums[i]);
          sums[i] = key < group.context_of(query) ? longer : sums[i];
        }
      }
      for (std::int64_t i = 0; i < queries_at_once && first + i < group.count; ++i) {
        const std::int64_t query = first + i;
        group.results[query * group.results_stride + d] = sums[i] / group.scores[query * group.scores_stride + sum_at];
      }
    }
  }
}

#else

// Continues the scores of keys first .. first + count - 1 by one part of `depth` dimensions, whose rows row_of(j) lie
// row_stride apart for as many positions as run_of(j) says. Scores up to keys_at_once are written.
struct ScorePart {
  const float* queries;
  std::int64_t query_stride;
  std::int64_t depth;
  std::int64_t row_stride;
  bool from_zero;
};

template <class RowOf, class RunOf>
void score_part(const QueryGroup& group, const ScorePart& part, std::int64_t first, std::int64_t count,
                const RowOf& row_of, const RunOf& run_of) {
  constexpr std::int64_t depth_at_once = 64;  // what is transposed stays in the cache of a core
  alignas(64) float transposed[depth_at_once * keys_at_once] = {};
  for (std::int64_t d = 0; d < part.depth; d += depth_at_once) {
    const std::int64_t depth = part.depth - d < depth_at_once ? part.depth - d : depth_at_once;
    for (std::int64_t key = 0; key < count;) {
      const std::int64_t run = run_of(first + key, first + count);
      cpu::transpose_rows({row_of(first + key) + d, part.row_stride}, run, depth, transposed + key, keys_at_once);
      key += run;
    }
    cpu::multiply_heads({group.count,
                         depth,
                         keys_at_once,
                         {part.queries + d, part.query_stride},
                         {transposed, keys_at_once},
                         group.scores + first,
                         group.scores_stride,
                         part.from_zero && d == 0,
                         nullptr});
  }
}

inline void score_shared(const Team& /*one thread*/, const SharedDims& dims, const QueryGroup& group,
                         const KeyRows& rows) {
  const std::int64_t context = group.last_context();
  const auto cached_run = [&rows](std::int64_t j, std::int64_t end) { return rows.cached_run(j, end); };
  const ScorePart rotated = {group.rotated, group.rotated_stride, dims.rotated, token_width(rows.cache), false};
  for (std::int64_t first = 0; first < context; first += keys_at_once) {
    const std::int64_t count = context - first < keys_at_once ? context - first : keys_at_once;
    const auto plain_of = [&rows](std::int64_t j) { return rows.plain(j); };
    if (rows.keys == nullptr) {
      score_part(group, {group.plain, group.plain_stride, dims.plain, token_width(rows.cache), true}, first, count,
                 plain_of, cached_run);
    } else {
      score_part(group, {group.plain, group.plain_stride, dims.plain, rows.key_stride, true}, first, count, plain_of,
                 [](std::int64_t j, std::int64_t end) { return end - j; });
    }
    score_part(
        group, rotated, first, count, [&rows](std::int64_t j) { return rows.rotated(j); }, cached_run);
  }
}

// Values of keys first .. first + count - 1, side by side, for queries from `query` on.
inline void weigh_run(const SharedDims& dims, const QueryGroup& group, const KeyRows& rows, std::int64_t query,
                      std::int64_t first, std::int64_t count, const float* next) {
  cpu::multiply_heads({group.count - query,
                       count,
                       dims.value,
                       {group.scores + query * group.scores_stride + first, group.scores_stride},
                       {rows.value(first), rows.values == nullptr ? token_width(rows.cache) : rows.value_stride},
                       group.results + query * group.results_stride,
                       group.results_stride,
                       first == 0,
                       next});
}

inline void weigh_shared(const Team& /*one thread*/, const SharedDims& dims, const QueryGroup& group,
                         const KeyRows& rows, std::int64_t sum_at) {
  constexpr std::int64_t values_at_once = 64;
  for (std::int64_t key = 0; key < group.first_context;) {
    std::int64_t run = rows.values == nullptr ? rows.cached_run(key, group.first_context) : group.first_context - key;
    run = run < values_at_once ? run : values_at_once;
    weigh_run(dims, group, rows, 0, key, run, key + run < group.first_context ? rows.value(key + run) : nullptr);
    key += run;
  }
  // What not all queries see, key by key.
  for (std::int64_t key = group.first_context; key < group.last_context(); ++key) {
    weigh_run(dims, group, rows, key - group.first_context + 1, key, 1, nullptr);
  }
  for (std::int64_t query = 0; query < group.count; ++query) {
    const float sum = group.scores[query * group.scores_stride + sum_at];
    float* results = group.results + query * group.results_stride;
    METRO_INDEPENDENT
    for (std::int64_t d = 0; d < dims.value; ++d) {
      results[d] = results[d] / sum;
    }
  }
}

#endif

// group.scores: room for floats_of_scores() of every query, whose last element sum_at is the index of.
KOKKOS_INLINE_FUNCTION void attend_shared(const Team& team, const SharedDims& dims, const QueryGroup& group,
                                          const KeyRows& rows, float scale, std::int64_t sum_at) {
  score_shared(team, dims, group, rows);
  team.barrier();
  const SumTerms terms(team);
  for (std::int64_t query = 0; query < group.count; ++query) {
    float* scores = group.scores + query * group.scores_stride;
    const std::int64_t context = group.context_of(query);
    const float top = largest(team, context, [=](std::int64_t j) { return scale * scores[j]; });
    const float sum = make_exponentials(team, terms, context, scale, top, scores);
    if (team.rank() == 0) {
      scores[sum_at] = sum;
    }
  }
  team.barrier();
  weigh_shared(team, dims, group, rows, sum_at);
}

}  // namespace metro::portable
