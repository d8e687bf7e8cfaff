#include "decoder/attention_step.hpp"

#include "base/error.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"

#include <algorithm>

namespace metro {

std::int64_t AttentionStep::rows_per_slab(const ModelSpec& spec, const DecoderLimits& limits) {
  const std::int64_t bytes_per_row = attention_scratch_floats(1, spec.attention.num_heads, limits.max_context) *
                                     static_cast<std::int64_t>(sizeof(float));
  return std::clamp<std::int64_t>(max_score_bytes / bytes_per_row, 1, limits.max_rows);
}

std::int64_t AttentionStep::num_scratch_bytes() const {
  return normed_.num_bytes() + q_.num_bytes() + k_.num_bytes() + v_.num_bytes() + attended_.num_bytes() +
         projected_.num_bytes() + scores_.num_bytes();
}

std::int64_t AttentionStep::planned_scratch_bytes(const ModelSpec& spec, const DecoderLimits& limits) {
  const std::int64_t row_floats = 2 * spec.hidden_size + 2 * spec.query_width() + 2 * spec.kv_width();
  return (limits.max_rows * row_floats +
          attention_scratch_floats(rows_per_slab(spec, limits), spec.attention.num_heads, limits.max_context)) *
         static_cast<std::int64_t>(sizeof(float));
}

AttentionStep::AttentionStep(const ModelSpec& spec, const RopeTable& rope, const DecoderLimits& limits)
    : spec_(&spec),
      rope_(&rope),
      limits_(limits),
      slab_rows_(rows_per_slab(spec, limits)),
      keys_("kv keys", spec.num_layers * limits.kv_blocks * spec.kv_width() * limits.block_tokens),
      values_("kv values", spec.num_layers * limits.kv_blocks * spec.kv_width() * limits.block_tokens),
      normed_("attention normed", limits.max_rows * spec.hidden_size),
      q_("attention q", limits.max_rows * spec.query_width()),
      k_("attention k", limits.max_rows * spec.kv_width()),
      v_("attention v", limits.max_rows * spec.kv_width()),
      attended_("attention output", limits.max_rows * spec.query_width()),
      projected_("attention projected", limits.max_rows * spec.hidden_size),
      scores_("attention scores", attention_scratch_floats(slab_rows_, spec.attention.num_heads, limits.max_context)) {}

void AttentionStep::run(std::int64_t layer, const DenseLayer& weights, const AttentionRows& rows, float* residual) {
  const AttentionSpec& attention = spec_->attention;
  const std::int64_t num_rows = rows.num_rows;
  METRO_REQUIRE(num_rows <= limits_.max_rows, "more rows than the buffers hold");
  if (num_rows == 0) {
    return;
  }
  apply_norm(weights.attention_norm, residual, num_rows, spec_->hidden_size, normed_.data());
  linear(normed_.data(), num_rows, weights.q, q_.data());
  linear(normed_.data(), num_rows, weights.k, k_.data());
  linear(normed_.data(), num_rows, weights.v, v_.data());
  norm_and_clip(weights, num_rows);
  rope(q_.data(), rows.rope_rows, num_rows, {attention.num_heads, attention.head_dim, spec_->rope.pairs}, rope_->cos(),
       rope_->sin());
  rope(k_.data(), rows.rope_rows, num_rows, {attention.num_kv_heads, attention.head_dim, spec_->rope.pairs},
       rope_->cos(), rope_->sin());

  const std::int64_t layer_floats = limits_.kv_blocks * spec_->kv_width() * limits_.block_tokens;
  const KvLayer cache{keys_.data() + layer * layer_floats, values_.data() + layer * layer_floats, limits_.block_tokens,
                      attention.num_kv_heads, attention.head_dim};
  attend({attention.score_scale, attention.window(layer), weights.sinks}, rows, cache);
  linear(attended_.data(), num_rows, weights.o, projected_.data());
  add(projected_.data(), num_rows * spec_->hidden_size, residual);
}

// Of queries, keys and values, before RoPE.
void AttentionStep::norm_and_clip(const DenseLayer& weights, std::int64_t num_rows) {
  const AttentionSpec& attention = spec_->attention;
  if (attention.query_key_norm != QueryKeyNorm::none) {
    const bool per_head = attention.query_key_norm == QueryKeyNorm::per_head;
    const auto norm = [&](std::int64_t num_heads, const float* weight, float* values) {
      const std::int64_t num_together = per_head ? 1 : num_heads;
      rms_norm(values, num_rows * num_heads / num_together, attention.head_dim * num_together, weight, spec_->norm_eps,
               values);
    };
    norm(attention.num_heads, weights.q_norm, q_.data());
    norm(attention.num_kv_heads, weights.k_norm, k_.data());
  }
  if (attention.clip > 0.0F) {
    clamp(attention.clip, num_rows * spec_->query_width(), q_.data());
    clamp(attention.clip, num_rows * spec_->kv_width(), k_.data());
    clamp(attention.clip, num_rows * spec_->kv_width(), v_.data());
  }
}

void AttentionStep::attend(const AttentionForm& form, AttentionRows rows, const KvLayer& cache) {
  const std::int64_t num_rows = rows.num_rows;
  const std::int64_t query_width = spec_->query_width();
  write_kv(k_.data(), v_.data(), rows, cache);
  for (std::int64_t first = 0; first < num_rows; first += slab_rows_) {
    rows.num_rows = std::min(slab_rows_, num_rows - first);
    attention(q_.data() + first * query_width, rows, cache, spec_->attention.num_heads, form, limits_.max_context,
              scores_.data(), attended_.data() + first * query_width);
    rows.positions += rows.num_rows;
    rows.sequences += rows.num_rows;
  }
}

}  // namespace metro
