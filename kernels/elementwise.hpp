// What changes every element of rows by itself. All arrays are memory of kernels.
#pragma once

#include <cstdint>

namespace metro {

// residual[r, i] += sigmoid(gates[r]) * x[r, i], by one fma. gates [num_rows], x and residual [num_rows, width]. A gate
// that is NaN makes its row NaN.
void add_gated(const float* x, const float* gates, std::int64_t num_rows, std::int64_t width, float* residual);

// x[i] becomes the nearest number from -limit to limit, [size]; NaN stays NaN. limit > 0.
void clamp(float limit, std::int64_t size, float* x);

}  // namespace metro
