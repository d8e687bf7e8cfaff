// RMSNorm.
#include "kernels/norm.hpp"

#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"

namespace metro {

using namespace portable;

void rms_norm(const float* x, std::int64_t num_rows, std::int64_t width, const float* weight, float eps, float* y) {
  require_kernel_memory("rms_norm", {{"x", x}, {"weight", weight}, {"y", y}});
  for_each_shaped_team(
      "rms_norm", num_rows, SumTerms::shape, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = x + row * width;
        float* out = y + row * width;
        const SumTerms terms(team);
        const float squares = sum_in_partials(
            team, terms, width, [=](std::int64_t i) { return in[i]; },
            [](float value, float partial) { return fused(value, value, partial); });
        const float scale = 1.0F / square_root(squares / static_cast<float>(width) + eps);
        for_each_element(team, width, [=](std::int64_t i) { out[i] = in[i] * scale * weight[i]; });
      });
}

}  // namespace metro
