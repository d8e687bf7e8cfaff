// The tensors that every rank holds: embedding, attention, norms, router, dense MLPs, head. Packed at load.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "kernels/buffer.hpp"
#include "kernels/experts.hpp"
#include "kernels/packed_matrix.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct DenseLayer {
  Buffer<float> attention_norm;  // [H]
  PackedMatrix q, k, v, o;       // [query_width, H], [kv_width, H] twice, [H, query_width]
  Buffer<float> q_norm, k_norm;  // [head_dim], empty without per-head norms
  Buffer<float> mlp_norm;        // [H]
  PackedMatrix gate;             // MoE layers: router [E, H]
  ExpertWeights mlp;             // dense layers
};

class DenseWeights {
 public:
  explicit DenseWeights(WeightReader& checkpoint);

  const PackedMatrix& embed() const { return embed_; }      // [vocab, H]
  const PackedMatrix& lm_head() const { return lm_head_; }  // [vocab, H]; the embedding when tied
  const Buffer<float>& norm() const { return norm_; }       // [H]
  const DenseLayer& layer(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  std::int64_t num_bytes() const { return num_bytes_; }

  // Bytes that an object of this class will hold, without reading any tensor.
  static std::int64_t planned_bytes(const WeightReader& checkpoint);

 private:
  PackedMatrix load_matrix(WeightReader& checkpoint, const std::string& dataset);
  ExpertWeights load_mlp(WeightReader& checkpoint, std::int64_t layer);
  Buffer<float> load_vector(WeightReader& checkpoint, const std::string& dataset);
  PackedMatrix keep_packed(StoredType type, std::int64_t out, std::int64_t in, const std::byte* source,
                           const float* scales);

  std::vector<RawBuffer> memory_;
  std::int64_t num_bytes_ = 0;
  PackedMatrix embed_;
  PackedMatrix lm_head_;
  Buffer<float> norm_;
  std::vector<DenseLayer> layers_;
};

}  // namespace metro
