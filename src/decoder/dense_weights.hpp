// The tensors that every rank holds: embedding, attention, norms, router, shared experts, dense MLPs, head. Packed at
// load, all in one piece of memory: a rank's own, or one that the ranks of a node share; then each of them loads some
// tensors.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "decoder/gate.hpp"
#include "decoder/replicated_memory.hpp"
#include "decoder/weight_loader.hpp"
#include "kernels/experts.hpp"
#include "kernels/head_linear.hpp"
#include "kernels/norm.hpp"
#include "kernels/packed_matrix.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// Of latent attention, beside q, which is made of q_a's latents if there is a q_a; kv_rank is R. Memory of kernels.
struct LatentWeights {
  PackedMatrix q_a;             // [query_rank, H]
  Norm q_a_norm;                // of query_rank elements
  PackedMatrix latent;          // [R, H]
  Norm latent_norm;             // of R elements
  PackedMatrix rotated_key;     // [rope_dim, H]
  HeadMatrices key, value;      // of heads: [nope_dim, R], [value_dim, R]
  HeadMatrices key_transposed;  // of heads: [R, nope_dim]
};

// Memory of kernels.
struct DenseLayer {
  Norm attention_norm;            // of H elements
  PackedMatrix q, k, v, o;        // [query_width, H], [kv_width, H] twice, [H, attended_width]
  LatentWeights latent;           // in place of k and v where attention is latent
  const float* q_norm = nullptr;  // [head_dim] or of all heads, nullptr without such norms
  const float* k_norm = nullptr;  // likewise
  const float* sinks = nullptr;   // [num_heads], nullptr without sinks
  Norm mlp_norm;                  // of H elements
  RouterWeights router;           // MoE layers
  ExpertWeights shared;           // MoE layers of models with a shared expert
  PackedMatrix shared_gate;       // likewise, if it is gated: [1, H]
  ExpertWeights mlp;              // dense layers
};

class DenseWeights {
 public:
  // Collective. Loads on num_kernel_threads() threads. Throws AgreedError if a rank finds damage or has no memory.
  DenseWeights(const WeightReader& checkpoint, Sharing sharing, Transport& transport);

  const PackedMatrix& embed() const { return embed_; }      // [vocab, H]
  const PackedMatrix& lm_head() const { return lm_head_; }  // [vocab, H]; the embedding when tied
  const Norm& norm() const { return norm_; }                // of H elements
  const DenseLayer& layer(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }

  std::int64_t num_bytes() const { return memory_.num_bytes(); }

  // Of all tensors, without reading any: what a rank holds, or what the ranks of a node hold together.
  static std::int64_t planned_bytes(const WeightReader& checkpoint);

 private:
  ReplicatedMemory memory_;
  PackedMatrix embed_;
  PackedMatrix lm_head_;
  Norm norm_;
  std::vector<DenseLayer> layers_;
};

// What is to be loaded for them, one behind the other in `memory` of DenseWeights::planned_bytes().
std::vector<WeightUnit> dense_units(const WeightReader& checkpoint, std::span<std::byte> memory);

}  // namespace metro
