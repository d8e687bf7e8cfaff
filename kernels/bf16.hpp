// Activations as bf16, for products that take them so (grouped_experts.hpp). All arrays are memory of kernels.
#pragma once

#include <cstdint>

namespace metro {

// to[i] = from[i] rounded to the nearest bf16, ties to even; what is beyond the largest becomes infinite, NaN stays
// NaN. [size], not overlapping.
void round_to_bf16(const float* from, std::int64_t size, std::uint16_t* to);

// gate[i] = silu(gate[i]) * up[i] in fp32, rounded once. [size]
void silu_times_bf16(std::uint16_t* gate, const std::uint16_t* up, std::int64_t size);

// to[i] = from[i], exact. [size], not overlapping.
void widen_bf16_array(const std::uint16_t* from, std::int64_t size, float* to);

}  // namespace metro
