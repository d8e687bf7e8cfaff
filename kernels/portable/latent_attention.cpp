// Latent attention: which queries a work item has, and where its keys lie. The sums are in shared_keys.hpp.
#include "kernels/latent_attention.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/shared_keys.hpp"
#if !METRO_DEVICE_FORM
#include "kernels/cpu_settings.hpp"
#endif

#include <algorithm>
#include <string>

namespace metro {

namespace {

using namespace portable;

constexpr TeamShape attention_shape = {128, SumTerms::shape.shared_bytes};

// An item: some heads of one row.
struct AbsorbedItems {
  LatentQueries queries;
  AttentionRows rows;
  LatentCache cache;
  std::int64_t heads_of_item;
  std::int64_t scores_stride;
  float* scratch;
  float* out;

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t items_of_row = (queries.num_heads + heads_of_item - 1) / heads_of_item;
    const std::int64_t row = item / items_of_row;
    const std::int64_t head = item % items_of_row * heads_of_item;
    const std::int64_t left = queries.num_heads - head;
    const std::int64_t query = row * queries.num_heads + head;
    const QueryGroup group = {
        left < heads_of_item ? left : heads_of_item,
        queries.plain.data + row * queries.plain.row_stride + head * queries.plain.head_stride,
        queries.plain.head_stride,
        queries.rotated.data + row * queries.rotated.row_stride + head * queries.rotated.head_stride,
        queries.rotated.head_stride,
        std::int64_t{rows.positions[row]} + 1,
        0,
        scratch + query * scores_stride,
        scores_stride,
        out + query * cache.kv_rank,
        cache.kv_rank};
    if (group.first_context <= 0) {
      for_each_element(team, group.count * cache.kv_rank, [&](std::int64_t i) { group.results[i] = 0.0F; });
      return;
    }
    const KeyRows keys = {cache, rows.block_tables + rows.sequences[row] * rows.max_blocks, nullptr, 0, nullptr, 0};
    attend_shared(team, {cache.kv_rank, cache.rope_dim, cache.kv_rank}, group, keys, queries.scale, scores_stride - 1);
  }
};

// An item: one head of a tile of rows.
struct ExpandedItems {
  enum : bool { never_recorded = true };  // only in prefill; a variable would be one that nobody refers to, says nvcc

  LatentQueries queries;
  QueryTiles tiles;
  const std::int32_t* block_tables;
  std::int64_t max_blocks;
  LatentCache cache;
  ExpandedKeys expanded;
  std::int64_t scores_stride;
  float* scratch;
  float* out;
  std::int64_t out_row_stride;

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const QueryTile& tile = tiles.tiles[item / queries.num_heads];
    const std::int64_t head = item % queries.num_heads;
    const std::int64_t row = tile.first_row;
    const QueryGroup group = {
        tile.num_rows,
        queries.plain.data + row * queries.plain.row_stride + head * queries.plain.head_stride,
        queries.plain.row_stride,
        queries.rotated.data + row * queries.rotated.row_stride + head * queries.rotated.head_stride,
        queries.rotated.row_stride,
        std::int64_t{tile.first_position} + 1,
        1,
        scratch + ((row - tiles.first_row) * queries.num_heads + head) * scores_stride,
        queries.num_heads * scores_stride,
        out + row * out_row_stride + head * expanded.value_dim,
        out_row_stride};
    const std::int64_t first = tile.first_key * queries.num_heads + head;
    const KeyRows keys = {cache,
                          block_tables + tile.sequence * max_blocks,
                          expanded.keys + first * expanded.key_stride,
                          queries.num_heads * expanded.key_stride,
                          expanded.values + first * expanded.value_stride,
                          queries.num_heads * expanded.value_stride};
    attend_shared(team, {expanded.key_dim, cache.rope_dim, expanded.value_dim}, group, keys, queries.scale,
                  scores_stride - 1);
  }
};

void require_queries(const char* kernel, const LatentQueries& queries, const LatentCache& cache,
                     const ScoreScratch& scratch, const float* out) {
  METRO_REQUIRE(cache.block_tokens > 0, std::to_string(cache.block_tokens));
  METRO_REQUIRE(queries.num_heads > 0, std::to_string(queries.num_heads));
  require_kernel_memory(kernel, {{"plain", queries.plain.data},
                                 {"rotated", queries.rotated.data},
                                 {"tokens", cache.tokens},
                                 {"scratch", scratch.data},
                                 {"out", out}});
}

void require_rows(const char* kernel, const AttentionRows& rows) {
  require_kernel_memory(
      kernel, {{"positions", rows.positions}, {"sequences", rows.sequences}, {"block_tables", rows.block_tables}});
}

// What so many pairs of a query and a key cost, in bytes that are read meanwhile: an element of a key or value in the
// cache of a core serves several queries, as an element of a weight does (kernels/cpu/team.hpp).
std::int64_t bytes_of_pairs(std::int64_t num_pairs, std::int64_t dims) {
  return num_pairs * dims * static_cast<std::int64_t>(sizeof(float)) / 8;
}

std::int64_t bytes_of_rows(const LatentQueries& queries, const AttentionRows& rows, const LatentCache& cache) {
  std::int64_t num_keys = 0;
  for (std::int64_t row = 0; row < rows.num_rows && !device_form; ++row) {
    num_keys += rows.positions[row] + 1;
  }
  return bytes_of_pairs(num_keys * queries.num_heads, token_width(cache) + cache.kv_rank);
}

std::int64_t bytes_of_tiles(const LatentQueries& queries, const QueryTiles& tiles, const LatentCache& cache,
                            const ExpandedKeys& expanded) {
  std::int64_t num_keys = 0;
  for (std::int64_t i = 0; i < tiles.num_tiles && !device_form; ++i) {
    num_keys += std::int64_t{tiles.tiles[i].num_rows} * (tiles.tiles[i].first_position + 1);
  }
  return bytes_of_pairs(num_keys * queries.num_heads, expanded.key_dim + cache.rope_dim + expanded.value_dim);
}

// All heads of a row where there are rows for all threads: they read the same keys.
std::int64_t heads_of_item(std::int64_t num_heads, [[maybe_unused]] std::int64_t num_rows) {
#if METRO_DEVICE_FORM
  constexpr std::int64_t most_heads = 8;
  return std::min(num_heads, most_heads);
#else
  constexpr std::int64_t least_heads = 8;  // for which a key is multiplied at once (kernels/cpu/head_product_body.hpp)
  const std::int64_t wanted_items = num_kernel_threads() == 1 ? 1 : 2 * num_kernel_threads();
  const std::int64_t items_of_row = (wanted_items + num_rows - 1) / std::max<std::int64_t>(num_rows, 1);
  const std::int64_t heads = (num_heads + items_of_row - 1) / std::max<std::int64_t>(items_of_row, 1);
  return std::min(num_heads, (heads + least_heads - 1) / least_heads * least_heads);
#endif
}

}  // namespace

void write_latents(const float* latents, const float* rotated, const AttentionRows& rows, const LatentCache& cache) {
  METRO_REQUIRE(rows.num_rows == 0 || cache.block_tokens > 0, std::to_string(cache.block_tokens));
  require_rows("write_latents", rows);
  require_kernel_memory("write_latents", {{"latents", latents}, {"rotated", rotated}, {"tokens", cache.tokens}});
  for_each_team(
      "write_latents", rows.num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const std::int64_t position = rows.positions[row];
        if (position < 0) {
          return;
        }
        float* token = token_at(cache, rows.block_tables + rows.sequences[row] * rows.max_blocks, position);
        for_each_element(team, token_width(cache), [=](std::int64_t d) {
          token[d] =
              d < cache.kv_rank ? latents[row * cache.kv_rank + d] : rotated[row * cache.rope_dim + d - cache.kv_rank];
        });
      });
}

void read_latents(const LatentCache& cache, const AttentionRows& rows, std::int64_t sequence, std::int64_t first_key,
                  std::int64_t num_keys, float* latents) {
  METRO_REQUIRE(num_keys == 0 || cache.block_tokens > 0, std::to_string(cache.block_tokens));
  require_kernel_memory("read_latents",
                        {{"tokens", cache.tokens}, {"block_tables", rows.block_tables}, {"latents", latents}});
  const std::int32_t* blocks = rows.block_tables + sequence * rows.max_blocks;
  for_each_team(
      "read_latents", num_keys,
      KOKKOS_LAMBDA(const Team& team, std::int64_t key) {
        const float* token = token_at(cache, blocks, first_key + key);
        for_each_element(team, cache.kv_rank, [=](std::int64_t d) { latents[key * cache.kv_rank + d] = token[d]; });
      },
      2 * num_keys * cache.kv_rank * static_cast<std::int64_t>(sizeof(float)));
}

std::int64_t latent_scratch_floats(std::int64_t num_rows, std::int64_t num_heads, std::int64_t max_context) {
  return num_rows * num_heads * floats_of_scores(max_context);
}

void absorbed_attention(const LatentQueries& queries, const AttentionRows& rows, const LatentCache& cache,
                        const ScoreScratch& scratch, float* out) {
  require_queries("absorbed_attention", queries, cache, scratch, out);
  require_rows("absorbed_attention", rows);
  const std::int64_t heads = heads_of_item(queries.num_heads, rows.num_rows);
  for_each_shaped_team(
      "absorbed_attention", rows.num_rows * ((queries.num_heads + heads - 1) / heads), attention_shape,
      AbsorbedItems{queries, rows, cache, heads, floats_of_scores(scratch.max_context), scratch.data, out},
      bytes_of_rows(queries, rows, cache));
}

void expanded_attention(const LatentQueries& queries, const QueryTiles& tiles, const AttentionRows& rows,
                        const LatentCache& cache, const ExpandedKeys& expanded, const ScoreScratch& scratch, float* out,
                        std::int64_t out_row_stride) {
  require_queries("expanded_attention", queries, cache, scratch, out);
  require_kernel_memory("expanded_attention", {{"tiles", tiles.tiles},
                                               {"block_tables", rows.block_tables},
                                               {"keys", expanded.keys},
                                               {"values", expanded.values}});
  for_each_shaped_team("expanded_attention", tiles.num_tiles * queries.num_heads, attention_shape,
                       ExpandedItems{queries, tiles, rows.block_tables, rows.max_blocks, cache, expanded,
                                     floats_of_scores(scratch.max_context), scratch.data, out, out_row_stride},
                       bytes_of_tiles(queries, tiles, cache, expanded));
}

}  // namespace metro
