#include "decoder/attention_step.hpp"

#include "base/error.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"

#include <algorithm>

namespace metro {

std::int64_t AttentionStep::kv_bytes_per_block(const ModelSpec& spec, std::int64_t block_tokens) {
  return spec.num_layers * 2 * spec.kv_width() * block_tokens * static_cast<std::int64_t>(sizeof(float));
}

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
  rms_norm(residual, num_rows, spec_->hidden_size, weights.attention_norm, spec_->norm_eps, normed_.data());
  linear(normed_.data(), num_rows, weights.q, q_.data());
  linear(normed_.data(), num_rows, weights.k, k_.data());
  linear(normed_.data(), num_rows, weights.v, v_.data());
  if (attention.query_key_norm == QueryKeyNorm::per_head) {
    rms_norm(q_.data(), num_rows * attention.num_heads, attention.head_dim, weights.q_norm, spec_->norm_eps, q_.data());
    rms_norm(k_.data(), num_rows * attention.num_kv_heads, attention.head_dim, weights.k_norm, spec_->norm_eps,
             k_.data());
  }
  rope(q_.data(), rows.rope_rows, num_rows, attention.num_heads, attention.head_dim, rope_->cos(), rope_->sin());
  rope(k_.data(), rows.rope_rows, num_rows, attention.num_kv_heads, attention.head_dim, rope_->cos(), rope_->sin());

  const std::int64_t layer_floats = limits_.kv_blocks * spec_->kv_width() * limits_.block_tokens;
  const KvLayer cache{keys_.data() + layer * layer_floats, values_.data() + layer * layer_floats, limits_.block_tokens,
                      attention.num_kv_heads, attention.head_dim};
  attend(rows, cache);
  linear(attended_.data(), num_rows, weights.o, projected_.data());
  add(projected_.data(), num_rows * spec_->hidden_size, residual);
}

void AttentionStep::attend(AttentionRows rows, const KvLayer& cache) {
  const std::int64_t num_rows = rows.num_rows;
  const std::int64_t query_width = spec_->query_width();
  write_kv(k_.data(), v_.data(), rows, cache);
  for (std::int64_t first = 0; first < num_rows; first += slab_rows_) {
    rows.num_rows = std::min(slab_rows_, num_rows - first);
    attention(q_.data() + first * query_width, rows, cache, spec_->attention.num_heads, spec_->attention.score_scale,
              limits_.max_context, scores_.data(), attended_.data() + first * query_width);
    rows.positions += rows.num_rows;
    rows.sequences += rows.num_rows;
  }
}

}  // namespace metro
