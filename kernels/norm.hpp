// RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight. The sum of squares is 16 partial sums (element i to partial i mod
// 16, ascending, by fma) joined by a fixed tree, so that its bits depend on the row alone.
#pragma once

#include <cstdint>

namespace metro {

// x, y [num_rows, width] (may be the same array), weight [width]. A head norm is num_rows = rows * heads, width =
// head_dim.
void rms_norm(const float* x, std::int64_t num_rows, std::int64_t width, const float* weight, float eps, float* y);

}  // namespace metro
