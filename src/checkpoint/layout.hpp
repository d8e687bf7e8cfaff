// Names of the datasets of a checkpoint (docs/formats.md), in one place.
// Shapes are [out, in] as Hugging Face stores linear layers; H = hidden_size, F = expert width, E = num_experts.
#pragma once

#include <cstdint>
#include <string>

namespace metro::layout {

inline constexpr const char* format_name = "metro-checkpoint";
// Files without scales, files with int8 weights, and files with fp8 or mxfp4 weights.
inline constexpr std::int64_t plain_version = 1;
inline constexpr std::int64_t int8_version = 2;
inline constexpr std::int64_t block_scale_version = 3;

inline constexpr const char* embed = "/embed";      // [vocab, H]
inline constexpr const char* norm = "/norm";        // [H]
inline constexpr const char* lm_head = "/lm_head";  // [vocab, H], absent when tied
inline constexpr const char* source_group = "/source";

// "/layers/NNN/<name>"
std::string in_layer(std::int64_t layer, const std::string& name);

// "<dataset>_scale": the scales of a dataset of int8, fp8 or mxfp4 weights.
std::string scale_of(const std::string& dataset);
bool is_scale(const std::string& dataset);

// "<dataset>_bias": what a linear layer adds to its results, or a norm to its: the shape of the weights without the
// last extent, or that of the norm's weights.
std::string bias_of(const std::string& dataset);
bool is_bias(const std::string& dataset);
// Of the weights, for the name of their bias or scales.
std::string weights_of(const std::string& dataset);

// Names below a layer.
inline constexpr const char* attention_norm = "attention/norm";  // [H], before attention
inline constexpr const char* attention_q = "attention/q";        // [num_heads * head_dim, H]
inline constexpr const char* attention_k = "attention/k";        // [num_kv_heads * head_dim, H]
inline constexpr const char* attention_v = "attention/v";        // [num_kv_heads * head_dim, H]
// Of latent attention; its q is made of q_a's latents if there is a q_a. R = kv_rank, and heads side by side.
inline constexpr const char* attention_q_a = "attention/q_a";              // [query_rank, H]
inline constexpr const char* attention_q_a_norm = "attention/q_a_norm";    // [query_rank]
inline constexpr const char* attention_kv_a = "attention/kv_a";            // [R + rope_dim, H]
inline constexpr const char* attention_kv_a_norm = "attention/kv_a_norm";  // [R]
inline constexpr const char* attention_kv_b = "attention/kv_b";            // [num_heads * (nope_dim + value_dim), R]
inline constexpr const char* attention_o = "attention/o";                  // [H, num_heads * head_dim]
inline constexpr const char* attention_q_norm =
    "attention/q_norm";  // [head_dim], or of all heads, [num_heads * head_dim]
inline constexpr const char* attention_k_norm = "attention/k_norm";  // likewise
inline constexpr const char* attention_sinks = "attention/sinks";    // [num_heads], in models that have them
inline constexpr const char* mlp_norm = "mlp_norm";                  // [H], before the MLP or the experts
inline constexpr const char* gate = "gate";                          // [E, H], the router
inline constexpr const char* gate_correction = "gate_correction";    // [E], added where experts are chosen
inline constexpr const char* experts_gate_up = "experts/gate_up";    // [E, 2F, H]: rows 0..F-1 gate, F..2F-1 up
inline constexpr const char* experts_down = "experts/down";          // [E, H, F]
inline constexpr const char* dense_gate_up = "dense/gate_up";        // [2 * width, H]
inline constexpr const char* dense_down = "dense/down";              // [H, width]
inline constexpr const char* shared_gate_up = "shared/gate_up";      // [2 * width, H], of the shared expert
inline constexpr const char* shared_down = "shared/down";            // [H, width]
inline constexpr const char* shared_gate = "shared/gate";            // [1, H], of the sigmoid it is multiplied by

}  // namespace metro::layout
