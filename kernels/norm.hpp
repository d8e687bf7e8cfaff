// RMSNorm and LayerNorm of rows. Sums are 16 partial sums (element i to partial i mod 16, ascending) joined by a fixed
// tree, so that their bits depend on the row alone.
#pragma once

#include "base/model_forms.hpp"

#include <cstdint>

namespace metro {

// y = x / sqrt(mean(x^2) + eps) * weight. x, y [num_rows, width] (may be the same array), weight [width]. A head norm
// is num_rows = rows * heads, width = head_dim. All is memory of kernels.
void rms_norm(const float* x, std::int64_t num_rows, std::int64_t width, const float* weight, float eps, float* y);

// y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias. x, y [num_rows, width] (may be the same
// array), weight, bias [width]. All is memory of kernels.
void layer_norm(const float* x, std::int64_t num_rows, std::int64_t width, const float* weight, const float* bias,
                float eps, float* y);

// A norm of the model. Memory of kernels.
struct Norm {
  NormKind kind = NormKind::rms;
  const float* weight = nullptr;  // [width]
  const float* bias = nullptr;    // [width] of a LayerNorm
  float eps = 0.0F;
};

// y = norm of x; arrays as above. One launch, whatever its kind.
void apply_norm(const Norm& norm, const float* x, std::int64_t num_rows, std::int64_t width, float* y);

}  // namespace metro
