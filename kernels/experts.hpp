// The expert FFN and the combine.
#pragma once

#include "base/model_forms.hpp"
#include "kernels/packed_matrix.hpp"

#include <cstdint>
#include <span>

namespace metro {

// Weights of one expert (or of a dense MLP): down(activation(gate(x), up(x))). gate and up have one stored type.
struct ExpertWeights {
  PackedMatrix gate;  // [F, H]
  PackedMatrix up;    // [F, H]
  PackedMatrix down;  // [H, F]
  Activation activation = {};
};

// One expert and its rows: rows first_row .. first_row + num_rows - 1 of x.
struct ExpertWork {
  ExpertWeights weights;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
};

// For each item of `work` (all of the same shape, stored types and activation): y = down(activation(gate(x), up(x))),
// unweighted. x [num_rows_total, H], hidden [num_rows_total, F] scratch, y [num_rows_total, H]. Sums as in linear().
void expert_ffn(std::span<const ExpertWork> work, const float* x, float* hidden, float* y);

// out[r, :] = sum over k of weights[r, k] * (the `width` floats at results + offsets[r * top_k + k]), by fma in
// ascending k from 0. offsets [num_rows, top_k] in floats, weights [num_rows, top_k], out [num_rows, width].
void combine(const float* results, const std::int64_t* offsets, const float* weights, std::int64_t num_rows,
             std::int64_t top_k, std::int64_t width, float* out);

}  // namespace metro
