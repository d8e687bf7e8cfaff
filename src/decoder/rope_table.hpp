// cos and sin of every position, made on rank 0 only: libm may differ between machines, a broadcast table cannot.
#pragma once

#include "kernels/buffer.hpp"
#include "model/model_spec.hpp"
#include "transport/transport.hpp"

#include <cstdint>

namespace metro {

struct RopeTable {
  Buffer<float> cos;  // [num_positions, head_dim / 2]
  Buffer<float> sin;  // [num_positions, head_dim / 2]
};

// Collective. Angles are rounded as transformers does (inverse frequencies and angles in fp32), so that tokens of long
// contexts agree with it; cosine and sine themselves are computed in double.
RopeTable make_rope_table(const ModelSpec& spec, std::int64_t num_positions, Transport& transport);

}  // namespace metro
