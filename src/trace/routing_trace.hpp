// A routing trace: which experts the gate of every MoE layer chose for every token of some requests. Recorded by a run
// or imported; what `metro replay` and activation-aware placement work from. Pure data. File: docs/formats.md, "Trace".
#pragma once

#include "base/integers.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace metro {

// What is the same for all tokens of a trace.
struct TraceModel {
  std::string family;  // model_type of config.json, for example "qwen3_moe"
  std::string origin;  // where the trace comes from, in words
  std::int64_t num_experts = 0;
  std::int64_t top_k = 0;
  std::vector<std::int32_t> layers;  // the recorded MoE layers as layers of the model, ascending

  std::int64_t num_layers() const { return std::ssize(layers); }
  std::int64_t ids_per_token() const { return num_layers() * top_k; }
};

enum class TracePhase : std::uint8_t { prefill = 0, decode = 1 };

// Tokens in any order; (request, position) names each of them once.
struct RoutingTrace {
  static constexpr std::int32_t unknown_token = -1;
  static constexpr std::int64_t unknown_step = -1;

  TraceModel model;
  std::vector<std::uint16_t>
      topk_idx;  // [tokens, layers, top_k] experts, distinct within a layer, in the order of the source
  std::vector<float> topk_weight;       // [tokens, layers, top_k], or empty
  std::vector<std::uint32_t> request;   // [tokens]
  std::vector<std::uint32_t> position;  // [tokens] place of the token in its sequence, prompt included
  std::vector<std::int32_t> token_id;   // [tokens] or unknown_token
  std::vector<std::int64_t> step;       // [tokens] step of the run, or unknown_step
  std::vector<TracePhase> phase;        // [tokens]

  std::int64_t num_tokens() const { return std::ssize(request); }
  bool has_weights() const { return !topk_weight.empty(); }

  // The experts of token row `row` in recorded layer `layer` (an index into model.layers). [top_k]
  std::span<const std::uint16_t> experts(std::int64_t row, std::int64_t layer) const {
    return std::span(topk_idx).subspan(at((row * model.num_layers() + layer) * model.top_k), at(model.top_k));
  }
};

// Throws Error(input), beginning with `origin`, unless the model makes sense: at least one layer, layers ascending,
// 1 <= top_k <= num_experts <= 65536.
void check_trace_model(const TraceModel& model, const std::string& origin);

// Throws Error(input), beginning with `origin`, unless the trace is what its comments say: sizes, expert ids in range
// and distinct within a layer, finite weights, every (request, position) once. The row and layer of a fault are named.
void check_trace(const RoutingTrace& trace, const std::string& origin);

}  // namespace metro
