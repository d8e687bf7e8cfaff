// What a model is, in this project's words: everything the step needs to know, nothing about file formats.
// A family (families/*.cpp) makes it from a Hugging Face config.json; nothing else reads config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

enum class LayerKind { dense, moe };

struct AttentionSpec {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  // divides num_heads; KV head of query head h is h / (num_heads / num_kv_heads)
  std::int64_t head_dim = 0;
  bool qk_norm_per_head = false;  // RMSNorm of each query and key head before RoPE
};

struct RopeSpec {
  double theta = 10000.0;  // half-split pairs (i, i + head_dim / 2)
};

struct MoeSpec {
  std::int64_t num_experts = 0;
  std::int64_t top_k = 0;
  std::int64_t intermediate_size = 0;  // width F of one expert
  bool normalise_top_k = true;         // the top_k weights are divided by their sum
  std::int64_t num_groups = 1;         // expert groups of the model (EPLB places whole groups on nodes)
};

struct ModelSpec {
  std::string family;  // model_type of config.json
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;  // longest sequence the model was made for
  float norm_eps = 0.0F;
  AttentionSpec attention;
  RopeSpec rope;
  std::int64_t dense_intermediate_size = 0;  // width of the MLP of dense layers
  MoeSpec moe;
  std::vector<LayerKind> layers;         // [num_layers]
  bool tied_embeddings = false;          // lm_head is the embedding table
  std::vector<std::int32_t> end_tokens;  // generation ends after any of these; may be empty

  std::int64_t num_moe_layers() const;
  std::int64_t query_width() const { return attention.num_heads * attention.head_dim; }
  std::int64_t kv_width() const { return attention.num_kv_heads * attention.head_dim; }
};

}  // namespace metro
