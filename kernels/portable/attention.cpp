// RoPE, the KV cache, and attention: one work item per row and KV head, for all query heads that share it.
#include "kernels/attention.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"
#if !METRO_DEVICE_FORM
#include "kernels/cpu/head_product.hpp"
#endif

#include <algorithm>
#include <string>

namespace metro {

namespace {

using namespace portable;

// Scores of one head, padded to whole lanes, and one float for the sum of its exponentials.
constexpr std::int64_t scores_per_head(std::int64_t max_context) {
  return (max_context + num_partials - 1) / num_partials * num_partials + num_partials;
}

// The query heads of one row that share a KV head.
struct QueryHeads {
  std::int64_t row;
  std::int64_t kv_head;
  std::int64_t count;
  std::int64_t first_key;  // that they see
  std::int64_t context;    // the end of the keys that they see
  const float* q;          // [count, head_dim]
  float* scores;           // [count, scores_stride] by key, the sum of a head's exponentials last
  float* result;           // [count, head_dim]
};

KOKKOS_FORCEINLINE_FUNCTION std::int64_t first_key_seen(std::int64_t context, std::int64_t window) {
  return window > 0 && window < context ? context - window : 0;
}

struct AttentionItems {
  static constexpr TeamShape shape = {128, SumTerms::shape.shared_bytes};

  const float* q;
  AttentionRows rows;
  KvLayer cache;
  std::int64_t num_heads;
  AttentionForm form;
  std::int64_t scores_stride;
  float* scratch;
  float* out;

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t row = item / cache.num_kv_heads;
    const std::int64_t kv_head = item % cache.num_kv_heads;
    const std::int64_t group = num_heads / cache.num_kv_heads;
    const std::int64_t first_head = row * num_heads + kv_head * group;
    const std::int64_t context = std::int64_t{rows.positions[row]} + 1;
    const QueryHeads heads = {row,
                              kv_head,
                              group,
                              first_key_seen(context, form.window),
                              context,
                              q + first_head * cache.head_dim,
                              scratch + first_head * scores_stride,
                              out + first_head * cache.head_dim};
    if (heads.context <= 0) {
      for_each_element(team, group * cache.head_dim, [&](std::int64_t i) { heads.result[i] = 0.0F; });
      return;
    }
    score_keys(team, heads);
    team.barrier();
    const SumTerms terms(team);
    for (std::int64_t head = 0; head < group; ++head) {
      softmax(team, terms, heads, head);
    }
    team.barrier();
    weigh_values(team, heads);
  }

 private:
  // The block that holds the row's positions block_idx * block_tokens and on, of one KV head.
  KOKKOS_INLINE_FUNCTION std::int64_t block_offset(const QueryHeads& heads, std::int64_t block_idx) const {
    const std::int64_t block = rows.block_tables[rows.sequences[heads.row] * rows.max_blocks + block_idx];
    return (block * cache.num_kv_heads + heads.kv_head) * cache.head_dim * cache.block_tokens;
  }

  KOKKOS_INLINE_FUNCTION void softmax(const Team& team, const SumTerms& terms, const QueryHeads& heads,
                                      std::int64_t head) const {
    float* of_head = heads.scores + head * scores_stride;
    float* scores = of_head + heads.first_key;
    const std::int64_t num_keys = heads.context - heads.first_key;
    const float factor = form.scale;
    float top = largest(team, num_keys, [=](std::int64_t i) { return factor * scores[i]; });
    const float sink = form.sinks == nullptr ? 0.0F : form.sinks[heads.kv_head * heads.count + head];
    if (form.sinks != nullptr && sink > top) {
      top = sink;
    }
    const float sum = make_exponentials(team, terms, num_keys, factor, top, scores);
    if (team.rank() == 0) {
      of_head[scores_stride - 1] = form.sinks == nullptr ? sum : sum + exp_of(sink - top);
    }
  }

#if METRO_DEVICE_FORM

  // Heads for which a thread uses a key or value that it has read.
  static constexpr std::int64_t heads_at_once = 4;

  // A key per thread: threads side by side read keys side by side.
  KOKKOS_FUNCTION void score_keys(const Team& team, const QueryHeads& heads) const {
    for (std::int64_t key = heads.first_key + team.rank(); key < heads.context; key += team.size()) {
      const float* keys = cache.keys + block_offset(heads, key / cache.block_tokens) + key % cache.block_tokens;
      for (std::int64_t first = 0; first < heads.count; first += heads_at_once) {
        float sums[heads_at_once] = {};
        const std::int64_t last = heads.count - 1;
        for (std::int64_t d = 0; d < cache.head_dim; ++d) {
          const float of_key = keys[d * cache.block_tokens];
          for (std::int64_t h = 0; h < heads_at_once; ++h) {
            const std::int64_t head = first + h < last ? first + h : last;
            sums[h] = fused(heads.q[head * cache.head_dim + d], of_key, sums[h]);
          }
        }
        for (std::int64_t h = 0; h < heads_at_once && first + h < heads.count; ++h) {
          heads.scores[(first + h) * scores_stride + key] = sums[h];
        }
      }
    }
  }

  // A dimension per thread, likewise, over all keys in ascending order.
  KOKKOS_FUNCTION void weigh_values(const Team& team, const QueryHeads& heads) const {
    const std::int64_t num_blocks = (heads.context + cache.block_tokens - 1) / cache.block_tokens;
    for (std::int64_t d = team.rank(); d < cache.head_dim; d += team.size()) {
      for (std::int64_t first = 0; first < heads.count; first += heads_at_once) {
        float sums[heads_at_once] = {};
        const std::int64_t last = heads.count - 1;
        for (std::int64_t block = heads.first_key / cache.block_tokens; block < num_blocks; ++block) {
          const std::int64_t first_key = block * cache.block_tokens;
          const std::int64_t left = heads.context - first_key;
          const std::int64_t tokens = left < cache.block_tokens ? left : cache.block_tokens;
          const std::int64_t hidden = first_key < heads.first_key ? heads.first_key - first_key : 0;
          const float* values = cache.values + block_offset(heads, block) + d;
          for (std::int64_t token = hidden; token < tokens; ++token) {
            const float value = values[token * cache.head_dim];
            for (std::int64_t h = 0; h < heads_at_once; ++h) {
              const std::int64_t head = first + h < last ? first + h : last;
              sums[h] = fused(heads.scores[head * scores_stride + first_key + token], value, sums[h]);
            }
          }
        }
        for (std::int64_t h = 0; h < heads_at_once && first + h < heads.count; ++h) {
          const float sum = heads.scores[(first + h) * scores_stride + scores_stride - 1];
          heads.result[(first + h) * cache.head_dim + d] = sums[h] / sum;
        }
      }
    }
  }

#else

  // Some keys of one block.
  struct KeysOfBlock {
    std::int64_t block;
    std::int64_t skipped;  // those at its begin
    std::int64_t count;
  };

  // Those that the heads see. `whole`: keys that they do not see are taken with them where that completes a register;
  // their scores are never read.
  KeysOfBlock keys_of_block(const QueryHeads& heads, std::int64_t block, bool whole) const {
    constexpr std::int64_t register_keys = 16;
    const std::int64_t first = block * cache.block_tokens;
    const std::int64_t skipped = std::max<std::int64_t>(heads.first_key - first, 0);
    const std::int64_t end = std::min(heads.context - first, cache.block_tokens);
    if (!whole || cache.block_tokens % register_keys != 0) {
      return {block, skipped, end - skipped};
    }
    const std::int64_t from = skipped / register_keys * register_keys;
    return {block, from, (end - from + register_keys - 1) / register_keys * register_keys};
  }

  void score_keys(const Team& /*one thread*/, const QueryHeads& heads) const {
    const std::int64_t block_tokens = cache.block_tokens;
    const std::int64_t num_blocks = (heads.context + block_tokens - 1) / block_tokens;
    const std::int64_t first_block = heads.first_key / block_tokens;
    for (std::int64_t block = first_block; block < num_blocks; ++block) {
      const KeysOfBlock keys = keys_of_block(heads, block, true);
      const float* next = block + 1 < num_blocks ? cache.keys + block_offset(heads, block + 1)
                                                 : cache.values + block_offset(heads, first_block);
      cpu::multiply_heads({heads.count,
                           cache.head_dim,
                           keys.count,
                           {heads.q, cache.head_dim},
                           {cache.keys + block_offset(heads, block) + keys.skipped, block_tokens},
                           heads.scores + block * block_tokens + keys.skipped,
                           scores_stride,
                           true,
                           next});
    }
  }

  void weigh_values(const Team& /*one thread*/, const QueryHeads& heads) const {
    const std::int64_t block_tokens = cache.block_tokens;
    const std::int64_t num_blocks = (heads.context + block_tokens - 1) / block_tokens;
    const std::int64_t first_block = heads.first_key / block_tokens;
    for (std::int64_t block = first_block; block < num_blocks; ++block) {
      const KeysOfBlock keys = keys_of_block(heads, block, false);
      const float* next = block + 1 < num_blocks ? cache.values + block_offset(heads, block + 1) : nullptr;
      cpu::multiply_heads({heads.count,
                           keys.count,
                           cache.head_dim,
                           {heads.scores + block * block_tokens + keys.skipped, scores_stride},
                           {cache.values + block_offset(heads, block) + keys.skipped * cache.head_dim, cache.head_dim},
                           heads.result,
                           cache.head_dim,
                           block == first_block,
                           next});
    }
    for (std::int64_t head = 0; head < heads.count; ++head) {
      const float sum = heads.scores[head * scores_stride + scores_stride - 1];
      float* values = heads.result + head * cache.head_dim;
      METRO_INDEPENDENT
      for (std::int64_t d = 0; d < cache.head_dim; ++d) {
        values[d] = values[d] / sum;
      }
    }
  }

#endif
};

void require_rows(const char* kernel, const AttentionRows& rows, const KvLayer& cache) {
  require_kernel_memory(kernel, {{"positions", rows.positions},
                                 {"sequences", rows.sequences},
                                 {"block_tables", rows.block_tables},
                                 {"keys", cache.keys},
                                 {"values", cache.values}});
}

// Keys and values that all rows attend to. On a device positions cannot be read here, and nobody asks.
std::int64_t bytes_of_cache(const AttentionRows& rows, const KvLayer& cache, std::int64_t window) {
  std::int64_t num_keys = 0;
  for (std::int64_t row = 0; row < rows.num_rows && !device_form; ++row) {
    const std::int64_t context = std::int64_t{rows.positions[row]} + 1;
    num_keys += context - first_key_seen(context, window);
  }
  return num_keys * 2 * cache.num_kv_heads * cache.head_dim * static_cast<std::int64_t>(sizeof(float));
}

// A team per head on a device, where teams are what there is plenty of; all heads of a row on a host.
std::int64_t heads_of_item(std::int64_t num_heads) {
  return device_form ? 1 : std::max<std::int64_t>(num_heads, 1);
}

}  // namespace

void rope(float* x, const std::int32_t* table_rows, std::int64_t num_rows, const RopedHeads& roped, const float* cos,
          const float* sin) {
  METRO_REQUIRE(roped.dims % 2 == 0, std::to_string(roped.dims));
  require_kernel_memory("rope", {{"x", x}, {"table_rows", table_rows}, {"cos", cos}, {"sin", sin}});
  const std::int64_t half = roped.dims / 2;
  const std::int64_t head_stride = roped.head_stride > 0 ? roped.head_stride : roped.dims;
  const std::int64_t row_stride = roped.row_stride > 0 ? roped.row_stride : roped.num_heads * head_stride;
  // Of the elements of a pair, and of pairs.
  const bool halves = roped.pairs == RopePairs::halves;
  const std::int64_t apart = halves ? half : 1;
  const std::int64_t pair_stride = halves ? 1 : 2;
  const std::int64_t heads = heads_of_item(roped.num_heads);
  const std::int64_t items_of_row = roped.num_heads / heads;
  for_each_team(
      "rope", num_rows * items_of_row, KOKKOS_LAMBDA(const Team& team, std::int64_t item) {
        const std::int64_t table_row = table_rows[item / items_of_row];
        if (table_row < 0) {
          return;
        }
        const float* row_cos = cos + table_row * half;
        const float* row_sin = sin + table_row * half;
        const std::int64_t first_head = item % items_of_row * heads;
        for (std::int64_t head = first_head; head < first_head + heads; ++head) {
          float* first = x + item / items_of_row * row_stride + head * head_stride;
          float* second = first + apart;
          for_each_element(team, half, [=](std::int64_t i) {
            const float a = first[i * pair_stride];
            const float b = second[i * pair_stride];
            first[i * pair_stride] = a * row_cos[i] - b * row_sin[i];
            second[i * pair_stride] = b * row_cos[i] + a * row_sin[i];
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
  const std::int64_t heads = heads_of_item(cache.num_kv_heads);
  const std::int64_t items_of_row = cache.num_kv_heads / heads;
  for_each_team(
      "write_kv", rows.num_rows * items_of_row, KOKKOS_LAMBDA(const Team& team, std::int64_t item) {
        const std::int64_t row = item / items_of_row;
        const std::int64_t position = rows.positions[row];
        if (position < 0) {
          return;
        }
        const std::int64_t token = position % block_tokens;
        const std::int64_t block = rows.block_tables[rows.sequences[row] * rows.max_blocks + position / block_tokens];
        for (std::int64_t i = item * heads; i < (item + 1) * heads; ++i) {
          const std::int64_t source = i * head_dim;
          const std::int64_t begin = (block * cache.num_kv_heads + i % cache.num_kv_heads) * head_dim * block_tokens;
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

void attention(const float* q, const AttentionRows& rows, const KvLayer& cache, std::int64_t num_heads,
               const AttentionForm& form, std::int64_t max_context, float* scratch, float* out) {
  METRO_REQUIRE(cache.block_tokens > 0, std::to_string(cache.block_tokens));
  METRO_REQUIRE(cache.num_kv_heads > 0 && num_heads % cache.num_kv_heads == 0,
                std::to_string(num_heads) + " heads over " + std::to_string(cache.num_kv_heads));
  require_rows("attention", rows, cache);
  METRO_REQUIRE(form.window >= 0, std::to_string(form.window));
  require_kernel_memory("attention", {{"q", q}, {"sinks", form.sinks}, {"scratch", scratch}, {"out", out}});
  for_each_shaped_team("attention", rows.num_rows * cache.num_kv_heads, AttentionItems::shape,
                       AttentionItems{q, rows, cache, num_heads, form, scores_per_head(max_context), scratch, out},
                       bytes_of_cache(rows, cache, form.window));
}

}  // namespace metro
