// Experts for tests of the kernels that run them.
#pragma once

#include "kernel_data.hpp"
#include "kernels/experts.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace metro::test {

struct Expert {
  Weights gate, up, down;

  ExpertWeights packed() const { return {gate.packed, up.packed, down.packed}; }
};

// gate and up of one stored type, down of another.
inline Expert random_expert(StoredType gate_up, StoredType down, std::int64_t width, std::int64_t hidden_width,
                            Numbers& numbers, bool has_bias = false) {
  return {random_weights(gate_up, hidden_width, width, numbers, has_bias),
          random_weights(gate_up, hidden_width, width, numbers, has_bias),
          random_weights(down, width, hidden_width, numbers, has_bias)};
}

inline Expert random_expert(StoredType type, std::int64_t width, std::int64_t hidden_width, Numbers& numbers) {
  return random_expert(type, type, width, hidden_width, numbers);
}

// Multiplies rows x [width] with x[0] = 1 by `factor`: gate 64 from x[0], so that silu(g) = g; up = identity * factor /
// 64; down = identity. All exact in bf16 for small factors.
inline Expert scaling_expert(StoredType type, std::int64_t width, std::int64_t factor) {
  const auto size = static_cast<std::size_t>(width * width);
  std::vector<float> gate(size, 0.0F);
  std::vector<float> up(size, 0.0F);
  std::vector<float> down(size, 0.0F);
  for (std::int64_t i = 0; i < width; ++i) {
    gate[static_cast<std::size_t>(i * width)] = 64.0F;
    up[static_cast<std::size_t>(i * (width + 1))] = static_cast<float>(factor) / 64.0F;
    down[static_cast<std::size_t>(i * (width + 1))] = 1.0F;
  }
  return {weights_of(type, width, width, gate), weights_of(type, width, width, up),
          weights_of(type, width, width, down)};
}

}  // namespace metro::test
