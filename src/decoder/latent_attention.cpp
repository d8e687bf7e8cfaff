#include "decoder/latent_attention.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"

#include <algorithm>

namespace metro {

namespace {

constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));

// What scratch that grows with rows * context may take, as long as it holds the least that is needed at a time.
constexpr std::int64_t most_score_floats = (std::int64_t{32} << 20) / float_bytes;
constexpr std::int64_t most_absorbed_floats = (std::int64_t{64} << 20) / float_bytes;
constexpr std::int64_t most_expanded_floats = (std::int64_t{64} << 20) / float_bytes;
constexpr std::int64_t wanted_tile_rows = 32;
constexpr std::int64_t wanted_latents = 1024;

std::int64_t padded(std::int64_t out) {
  return ceil_div(out, panel_columns) * panel_columns;
}

bool is_generated(const RowBatch& batch, std::int64_t row) {
  return batch.is_generated.empty() ? batch.decode : batch.is_generated[at(row)] != 0;
}

bool all_generated(const RowBatch& batch) {
  return batch.is_generated.empty() ? batch.decode || batch.num_rows() == 0
                                    : std::ranges::all_of(batch.is_generated, [](auto row) { return row != 0; });
}

}  // namespace

LatentAttention::Sizes LatentAttention::sizes_of(const ModelSpec& spec, const DecoderLimits& limits) {
  const std::int64_t num_heads = spec.attention.num_heads;
  const LatentSpec& latent = spec.attention.latent.value();
  const std::int64_t scores_of_head = latent_scratch_floats(1, 1, limits.max_context);
  const auto within = [](std::int64_t room, std::int64_t each, std::int64_t most) {
    return std::clamp<std::int64_t>(room / each, 1, most);
  };
  Sizes sizes;
  sizes.absorbed_rows = within(most_absorbed_floats, 2 * num_heads * latent.kv_rank, limits.max_rows);
  sizes.absorbed_score_rows = within(most_score_floats, num_heads * scores_of_head, sizes.absorbed_rows);
  sizes.head_floats = padded(latent.nope_dim) + padded(latent.value_dim);
  sizes.keys = std::max(limits.max_context, limits.max_rows);
  sizes.heads = std::min(within(most_expanded_floats, sizes.keys * sizes.head_floats, num_heads),
                         within(most_score_floats, wanted_tile_rows * scores_of_head, num_heads));
  sizes.latents = std::min(wanted_latents, sizes.keys);
  sizes.expanded_score_rows = within(most_score_floats, sizes.heads * scores_of_head, limits.max_rows);
  sizes.tile_rows = std::min(wanted_tile_rows, sizes.expanded_score_rows);
  sizes.num_scores =
      scores_of_head * std::max(sizes.absorbed_score_rows * num_heads, sizes.expanded_score_rows * sizes.heads);
  return sizes;
}

std::int64_t LatentAttention::num_scratch_bytes() const {
  return normed_.num_bytes() + q_latents_.num_bytes() + q_.num_bytes() + latents_.num_bytes() +
         rotated_keys_.num_bytes() + attended_.num_bytes() + projected_.num_bytes() + absorbed_.num_bytes() +
         weighted_.num_bytes() + context_latents_.num_bytes() + expanded_.num_bytes() + scores_.num_bytes() +
         tiles_.num_bytes();
}

std::int64_t LatentAttention::planned_scratch_bytes(const ModelSpec& spec, const DecoderLimits& limits) {
  const LatentSpec& latent = spec.attention.latent.value();
  const Sizes sizes = sizes_of(spec, limits);
  const std::int64_t row_floats =
      2 * spec.hidden_size + latent.query_rank + spec.query_width() + spec.cached_values() + spec.attended_width();
  return (limits.max_rows * row_floats + 2 * sizes.absorbed_rows * spec.attention.num_heads * latent.kv_rank +
          sizes.latents * latent.kv_rank + sizes.keys * sizes.heads * sizes.head_floats + sizes.num_scores) *
             float_bytes +
         limits.max_rows * static_cast<std::int64_t>(sizeof(QueryTile));
}

LatentAttention::LatentAttention(const ModelSpec& spec, const RopeTable& rope, const DecoderLimits& limits)
    : spec_(&spec),
      rope_(&rope),
      limits_(limits),
      latent_(spec.attention.latent.value()),
      sizes_(sizes_of(spec, limits)),
      cache_("kv latents", limits.kv_blocks * kv_bytes_per_block(spec, limits.block_tokens) / float_bytes),
      normed_("attention normed", limits.max_rows * spec.hidden_size),
      q_latents_("attention q latents", limits.max_rows * latent_.query_rank),
      q_("attention q", limits.max_rows * spec.query_width()),
      latents_("attention latents", limits.max_rows * latent_.kv_rank),
      rotated_keys_("attention rotated keys", limits.max_rows * latent_.rope_dim),
      attended_("attention output", limits.max_rows * spec.attended_width()),
      projected_("attention projected", limits.max_rows * spec.hidden_size),
      absorbed_("attention absorbed q", sizes_.absorbed_rows * spec.attention.num_heads * latent_.kv_rank),
      weighted_("attention weighted latents", sizes_.absorbed_rows * spec.attention.num_heads * latent_.kv_rank),
      context_latents_("attention latents of the context", sizes_.latents * latent_.kv_rank),
      expanded_("attention expanded keys and values", sizes_.keys * sizes_.heads * sizes_.head_floats),
      scores_("attention scores", sizes_.num_scores),
      tiles_("attention tiles", limits.max_rows) {}

std::vector<LatentAttention::Run> LatentAttention::runs_of(const RowBatch& batch) {
  std::vector<Run> runs;
  for (std::int64_t row = 0; row < batch.num_rows(); ++row) {
    const std::int32_t sequence = batch.sequences[at(row)];
    const std::int32_t position = batch.positions[at(row)];
    const bool generated = is_generated(batch, row);
    if (runs.empty() || runs.back().sequence != sequence || runs.back().num_keys() != position ||
        runs.back().is_generated != generated) {
      runs.push_back({row, 0, sequence, position, generated});
    }
    ++runs.back().num_rows;
  }
  return runs;
}

void LatentAttention::begin_step(const RowBatch& batch) {
  pieces_.clear();
  num_tiles_ = 0;
  all_absorbed_ = all_generated(batch);
  if (all_absorbed_) {
    return;
  }
  METRO_REQUIRE(!batch.decode, "a row of a prompt in a decode step");
  std::int64_t num_keys = 0;  // of the last piece
  for (const Run& run : runs_of(batch)) {
    num_keys += run.num_keys();
    if (pieces_.empty() || pieces_.back().is_absorbed != run.is_generated ||
        (!run.is_generated && num_keys > sizes_.keys)) {
      pieces_.push_back({run.is_generated, run.first_row, 0, {}, 0, 0});
      num_keys = run.num_keys();
    }
    pieces_.back().num_rows += run.num_rows;
    if (!run.is_generated) {
      pieces_.back().runs.push_back(run);
    }
  }
  for (Piece& piece : pieces_) {
    add_tiles(piece);
  }
  tiles_.to_kernels(num_tiles_);
}

void LatentAttention::add_tiles(Piece& piece) {
  piece.first_tile = num_tiles_;
  std::int64_t first_key = 0;
  for (const Run& run : piece.runs) {
    for (std::int64_t row = 0; row < run.num_rows; row += sizes_.tile_rows) {
      tiles_[num_tiles_++] = {static_cast<std::int32_t>(run.first_row + row),
                              static_cast<std::int32_t>(std::min(sizes_.tile_rows, run.num_rows - row)),
                              static_cast<std::int32_t>(run.first_position + row), run.sequence,
                              static_cast<std::int32_t>(first_key)};
    }
    first_key += run.num_keys();
  }
  piece.num_tiles = num_tiles_ - piece.first_tile;
}

void LatentAttention::run(std::int64_t layer, const DenseLayer& weights, const AttentionRows& rows, float* residual) {
  METRO_REQUIRE(rows.num_rows <= limits_.max_rows, "more rows than the buffers hold");
  if (rows.num_rows == 0) {
    return;
  }
  const std::int64_t layer_floats = limits_.kv_blocks * limits_.block_tokens * spec_->cached_values();
  const LatentCache cache{cache_.data() + layer * layer_floats, limits_.block_tokens, latent_.kv_rank,
                          latent_.rope_dim};
  project(weights, rows, residual, cache);
  if (all_absorbed_) {
    attend_absorbed(weights.latent, rows, cache, 0);
  }
  for (const Piece& piece : pieces_) {
    if (piece.is_absorbed) {
      AttentionRows part = rows;
      part.num_rows = piece.num_rows;
      part.positions += piece.first_row;
      part.sequences += piece.first_row;
      attend_absorbed(weights.latent, part, cache, piece.first_row);
    } else {
      attend_expanded(weights.latent, rows, cache, piece);
    }
  }
  linear(attended_.data(), rows.num_rows, weights.o, projected_.data());
  add(projected_.data(), rows.num_rows * spec_->hidden_size, residual);
}

// Queries, and what goes into the cache.
void LatentAttention::project(const DenseLayer& weights, const AttentionRows& rows, const float* residual,
                              const LatentCache& cache) {
  const std::int64_t num_rows = rows.num_rows;
  const AttentionSpec& attention = spec_->attention;
  const RopePairs pairs = spec_->rope.pairs;
  apply_norm(weights.attention_norm, residual, num_rows, spec_->hidden_size, normed_.data());
  const float* inputs = normed_.data();
  if (latent_.query_rank > 0) {
    linear(normed_.data(), num_rows, weights.latent.q_a, q_latents_.data());
    apply_norm(weights.latent.q_a_norm, q_latents_.data(), num_rows, latent_.query_rank, q_latents_.data());
    inputs = q_latents_.data();
  }
  linear(inputs, num_rows, weights.q, q_.data());
  linear(normed_.data(), num_rows, weights.latent.latent, latents_.data());
  linear(normed_.data(), num_rows, weights.latent.rotated_key, rotated_keys_.data());
  apply_norm(weights.latent.latent_norm, latents_.data(), num_rows, latent_.kv_rank, latents_.data());
  rope(q_.data() + latent_.nope_dim, rows.rope_rows, num_rows,
       {attention.num_heads, latent_.rope_dim, pairs, attention.head_dim, spec_->query_width()}, rope_->cos(),
       rope_->sin());
  rope(rotated_keys_.data(), rows.rope_rows, num_rows, {1, latent_.rope_dim, pairs}, rope_->cos(), rope_->sin());
  write_latents(latents_.data(), rotated_keys_.data(), rows, cache);
}

// Of the row first_row and head first_head on; `plain` begins with them.
LatentQueries LatentAttention::queries_of(const float* plain, std::int64_t plain_row, std::int64_t plain_head,
                                          std::int64_t first_row, std::int64_t first_head) const {
  const std::int64_t head_dim = spec_->attention.head_dim;
  const float* rotated = q_.data() + first_row * spec_->query_width() + first_head * head_dim + latent_.nope_dim;
  return {{plain, plain_row, plain_head},
          {rotated, spec_->query_width(), head_dim},
          spec_->attention.num_heads,
          spec_->attention.score_scale};
}

// rows: those from first_row on.
void LatentAttention::attend_absorbed(const LatentWeights& weights, AttentionRows rows, const LatentCache& cache,
                                      std::int64_t first_row) {
  const std::int64_t width = spec_->attention.num_heads * latent_.kv_rank;
  const std::int64_t end = first_row + rows.num_rows;
  for (std::int64_t slab = first_row; slab < end; slab += sizes_.absorbed_rows) {
    const std::int64_t slab_rows = std::min(sizes_.absorbed_rows, end - slab);
    linear_of_heads({q_.data() + slab * spec_->query_width(), spec_->query_width(), spec_->attention.head_dim},
                    slab_rows, weights.key_transposed, absorbed_.data());
    for (std::int64_t row = 0; row < slab_rows; row += sizes_.absorbed_score_rows) {
      rows.num_rows = std::min(sizes_.absorbed_score_rows, slab_rows - row);
      absorbed_attention(queries_of(absorbed_.data() + row * width, width, latent_.kv_rank, slab + row, 0), rows, cache,
                         {scores_.data(), limits_.max_context}, weighted_.data() + row * width);
      rows.positions += rows.num_rows;
      rows.sequences += rows.num_rows;
    }
    linear_of_heads({weighted_.data(), width, latent_.kv_rank}, slab_rows, weights.value,
                    attended_.data() + slab * spec_->attended_width());
  }
}

// Keys and values of some heads at all positions of the piece's sequences.
void LatentAttention::expand(const LatentWeights& weights, const AttentionRows& rows, const LatentCache& cache,
                             const Piece& piece, std::int64_t first_head, std::int64_t num_heads) {
  float* keys = expanded_.data();
  float* values = keys + sizes_.keys * num_heads * weights.key.padded_out();
  const PackedMatrix to_keys = weights.key.of_heads(first_head, num_heads);
  const PackedMatrix to_values = weights.value.of_heads(first_head, num_heads);
  for (const Run& run : piece.runs) {
    for (std::int64_t first = 0; first < run.num_keys(); first += sizes_.latents) {
      const std::int64_t count = std::min(sizes_.latents, run.num_keys() - first);
      read_latents(cache, rows, run.sequence, first, count, context_latents_.data());
      linear(context_latents_.data(), count, to_keys, keys);
      linear(context_latents_.data(), count, to_values, values);
      keys += count * to_keys.out;
      values += count * to_values.out;
    }
  }
}

void LatentAttention::attend_expanded(const LatentWeights& weights, const AttentionRows& rows, const LatentCache& cache,
                                      const Piece& piece) {
  const AttentionSpec& attention = spec_->attention;
  for (std::int64_t head = 0; head < attention.num_heads; head += sizes_.heads) {
    const std::int64_t num_heads = std::min(sizes_.heads, attention.num_heads - head);
    expand(weights, rows, cache, piece, head, num_heads);
    const float* const values = expanded_.data() + sizes_.keys * num_heads * weights.key.padded_out();
    const ExpandedKeys expanded{expanded_.data(),  values,
                                latent_.nope_dim,  weights.key.padded_out(),
                                latent_.value_dim, weights.value.padded_out()};
    LatentQueries queries =
        queries_of(q_.data() + head * attention.head_dim, spec_->query_width(), attention.head_dim, 0, head);
    queries.num_heads = num_heads;
    std::int64_t tile = piece.first_tile;
    while (tile < piece.first_tile + piece.num_tiles) {
      QueryTiles tiles{tiles_.kernels() + tile, 0, tiles_[tile].first_row};
      for (std::int64_t num_rows = 0; tile < piece.first_tile + piece.num_tiles; ++tile, ++tiles.num_tiles) {
        num_rows += tiles_[tile].num_rows;
        if (num_rows > sizes_.expanded_score_rows) {
          break;
        }
      }
      expanded_attention(queries, tiles, rows, cache, expanded, {scores_.data(), limits_.max_context},
                         attended_.data() + head * latent_.value_dim, spec_->attended_width());
    }
  }
}

}  // namespace metro
