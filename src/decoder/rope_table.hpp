// cos and sin of every position, made on rank 0 only: libm may differ between machines, a broadcast table cannot.
#pragma once

#include "decoder/replicated_memory.hpp"
#include "model/model_spec.hpp"
#include "transport/transport.hpp"

#include <cstdint>

namespace metro {

class RopeTable {
 public:
  // Collective. Angles are rounded to fp32 as transformers does, so that tokens of long contexts agree with it; cosine
  // and sine themselves are computed in double. Throws AgreedError without memory.
  RopeTable(const ModelSpec& spec, std::int64_t num_positions, Sharing sharing, Transport& transport);

  // For kernels.
  const float* cos() const { return cos_; }  // [num_sets * num_positions, spec.rope_dims() / 2]
  const float* sin() const { return sin_; }  // [num_sets * num_positions, spec.rope_dims() / 2]

  std::int64_t num_bytes() const { return memory_.num_bytes(); }
  // What a rank holds, or what the ranks of a node hold together.
  static std::int64_t planned_bytes(const ModelSpec& spec, std::int64_t num_positions);

 private:
  ReplicatedMemory memory_;
  const float* cos_ = nullptr;
  const float* sin_ = nullptr;
};

}  // namespace metro
