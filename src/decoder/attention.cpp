#include "decoder/attention.hpp"

#include "decoder/attention_step.hpp"
#include "decoder/latent_attention.hpp"

namespace metro {

std::unique_ptr<Attention> make_attention(const ModelSpec& spec, const RopeTable& rope, const DecoderLimits& limits) {
  if (spec.attention.latent) {
    return std::make_unique<LatentAttention>(spec, rope, limits);
  }
  return std::make_unique<AttentionStep>(spec, rope, limits);
}

std::int64_t kv_bytes_per_block(const ModelSpec& spec, std::int64_t block_tokens) {
  return spec.num_layers * spec.cached_values() * block_tokens * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t planned_attention_bytes(const ModelSpec& spec, const DecoderLimits& limits) {
  return spec.attention.latent ? LatentAttention::planned_scratch_bytes(spec, limits)
                               : AttentionStep::planned_scratch_bytes(spec, limits);
}

}  // namespace metro
