// A small valid config.json, to be varied field by field.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace metro::test {

inline nlohmann::json small_config() {
  return {{"model_type", "qwen3_moe"},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"num_hidden_layers", 5},
          {"hidden_size", 48},
          {"vocab_size", 100},
          {"intermediate_size", 40},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-6},
          {"num_attention_heads", 6},
          {"num_key_value_heads", 2},
          {"head_dim", 10},
          {"num_experts", 7},
          {"num_experts_per_tok", 3},
          {"moe_intermediate_size", 12},
          {"norm_topk_prob", true},
          {"mlp_only_layers", {1}},
          {"decoder_sparse_step", 2},
          {"tie_word_embeddings", true},
          {"rope_theta", 5000.0},
          {"rope_scaling", nullptr},
          {"eos_token_id", 9},
          {"use_sliding_window", false}};
}

// small_config with one field replaced.
inline std::string config_with(const std::string& field, const nlohmann::json& value) {
  nlohmann::json config = small_config();
  config[field] = value;
  return config.dump();
}

inline std::string config_without(const std::string& field) {
  nlohmann::json config = small_config();
  config.erase(field);
  return config.dump();
}

}  // namespace metro::test
