// What a model is, in this project's words: everything the step needs to know, nothing about file formats.
// A family (families/*.cpp) makes it from a Hugging Face config.json; nothing else reads config.json. The step sees in
// the list of tensors alone whether a linear layer has a bias (layout::bias_of()).
#pragma once

#include "base/model_forms.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metro {

enum class LayerKind { dense, moe };

// RMSNorm of queries and keys, before RoPE: of each head, or of all heads together.
enum class QueryKeyNorm { none, per_head, full_width };

// Multi-head latent attention: keys and values are linear in a latent of a token that all heads share, and the latent
// is what is cached. A query head is [nope | rope], a key head [its own nope | the token's one rope].
struct LatentSpec {
  std::int64_t query_rank = 0;  // 0: queries are made of the hidden state directly
  std::int64_t kv_rank = 0;     // width of the latent
  std::int64_t nope_dim = 0;    // of a head, without RoPE
  std::int64_t rope_dim = 0;    // with
  std::int64_t value_dim = 0;
  float norm_eps = 0.0F;  // of the latents of queries and keys
};

struct AttentionSpec {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  // divides num_heads; KV head of query head h is h / (num_heads / num_kv_heads)
  std::int64_t head_dim = 0;      // of queries and keys
  float score_scale = 0.0F;       // scores are multiplied by it before the softmax
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool has_qkv_bias = false;               // projections to queries, keys and values have a bias
  bool has_output_bias = false;            // the projection of the result has one
  float clip = 0.0F;                       // queries, keys and values are clamped to -clip .. clip; 0: they are not
  bool has_sinks = false;                  // one logit per query head that counts in the softmax and nowhere else
  std::vector<std::int64_t> windows = {};  // [num_layers] of window(); empty: all of all layers
  std::optional<LatentSpec> latent = {};

  // Newest keys that a query of this layer sees; 0: all.
  std::int64_t window(std::int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)];
  }
};

// One set of angles: position p rotates pair i by p * inverse_frequencies[i]; cos and sin are multiplied by `scale`.
struct RopeFactors {
  std::vector<float> inverse_frequencies;  // [rotated dimensions of a head / 2]
  float scale = 1.0F;
};

struct RopeSpec {
  RopePairs pairs = RopePairs::halves;
  double theta = 10000.0;         // what the sets were made of, for people
  std::string scaling = "none";   // likewise
  std::vector<RopeFactors> sets;  // one; with switch_at two
  std::int64_t switch_at = 0;  // a sequence of more tokens uses set 1 at all its positions; 0: there is no such switch
};

struct MoeSpec {
  std::int64_t num_experts = 0;
  std::int64_t top_k = 0;
  std::int64_t intermediate_size = 0;  // width F of one expert
  GateForm gate = {};
  Activation activation = {};
  std::int64_t shared_width = 0;  // of the shared expert, through which every row goes; 0: there is none
  bool shared_is_gated = false;   // its result is multiplied by a sigmoid that depends on the row
};

struct ModelSpec {
  std::string family;  // model_type of config.json
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;  // longest sequence the model was made for
  NormKind norm = NormKind::rms;   // before attention, before the experts, before the head
  float norm_eps = 0.0F;
  AttentionSpec attention;
  RopeSpec rope;
  std::int64_t dense_intermediate_size = 0;  // width of the MLP of dense layers
  MoeSpec moe;
  std::vector<LayerKind> layers;         // [num_layers]
  bool tied_embeddings = false;          // lm_head is the embedding table
  bool head_has_bias = false;            // never of a tied one
  std::vector<std::int32_t> end_tokens;  // generation ends after any of these; may be empty

  std::int64_t num_moe_layers() const;
  std::int64_t query_width() const { return attention.num_heads * attention.head_dim; }
  std::int64_t kv_width() const { return attention.num_kv_heads * attention.head_dim; }
  // Numbers that are cached of a token in a layer.
  std::int64_t cached_values() const {
    return attention.latent ? attention.latent->kv_rank + attention.latent->rope_dim : 2 * kv_width();
  }
  // What attention gives before its last projection.
  std::int64_t attended_width() const {
    return attention.num_heads * (attention.latent ? attention.latent->value_dim : attention.head_dim);
  }
  // Rotated dimensions of a head.
  std::int64_t rope_dims() const { return attention.latent ? attention.latent->rope_dim : attention.head_dim; }
};

}  // namespace metro
