// The tensors that every rank holds: embedding, attention, norms, router, dense MLPs, head. Packed at load, all in one
// piece of memory: a rank's own, or one that the ranks of a node share; then each of them loads some tensors.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "decoder/gate.hpp"
#include "decoder/replicated_memory.hpp"
#include "decoder/weight_loader.hpp"
#include "kernels/experts.hpp"
#include "kernels/packed_matrix.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// Memory of kernels.
struct DenseLayer {
  const float* attention_norm = nullptr;  // [H]
  PackedMatrix q, k, v, o;                // [query_width, H], [kv_width, H] twice, [H, query_width]
  const float* q_norm = nullptr;          // [head_dim], nullptr without per-head norms
  const float* k_norm = nullptr;          // likewise
  const float* mlp_norm = nullptr;        // [H]
  RouterWeights router;                   // MoE layers
  ExpertWeights mlp;                      // dense layers
};

class DenseWeights {
 public:
  // Collective. Loads on num_kernel_threads() threads. Throws AgreedError if a rank finds damage or has no memory.
  DenseWeights(const WeightReader& checkpoint, Sharing sharing, Transport& transport);

  const PackedMatrix& embed() const { return embed_; }      // [vocab, H]
  const PackedMatrix& lm_head() const { return lm_head_; }  // [vocab, H]; the embedding when tied
  const float* norm() const { return norm_; }               // [H]
  const DenseLayer& layer(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }

  std::int64_t num_bytes() const { return memory_.num_bytes(); }

  // Of all tensors, without reading any: what a rank holds, or what the ranks of a node hold together.
  static std::int64_t planned_bytes(const WeightReader& checkpoint);

 private:
  ReplicatedMemory memory_;
  PackedMatrix embed_;
  PackedMatrix lm_head_;
  const float* norm_ = nullptr;
  std::vector<DenseLayer> layers_;
};

// What is to be loaded for them, one behind the other in `memory` of DenseWeights::planned_bytes().
std::vector<WeightUnit> dense_units(const WeightReader& checkpoint, std::span<std::byte> memory);

}  // namespace metro
