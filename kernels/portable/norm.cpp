// RMSNorm and LayerNorm: a team per row.
#include "kernels/norm.hpp"

#include "base/error.hpp"
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

void layer_norm(const float* x, std::int64_t num_rows, std::int64_t width, const float* weight, const float* bias,
                float eps, float* y) {
  require_kernel_memory("layer_norm", {{"x", x}, {"weight", weight}, {"bias", bias}, {"y", y}});
  for_each_shaped_team(
      "layer_norm", num_rows, SumTerms::shape, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = x + row * width;
        float* out = y + row * width;
        const SumTerms terms(team);
        const float sum = sum_in_partials(
            team, terms, width, [=](std::int64_t i) { return in[i]; },
            [](float value, float partial) { return partial + value; });
        const float mean = sum / static_cast<float>(width);
        // Of centred elements: the mean of squares less the square of the mean would lose the digits they share.
        const float squares = sum_in_partials(
            team, terms, width, [=](std::int64_t i) { return in[i] - mean; },
            [](float value, float partial) { return fused(value, value, partial); });
        const float scale = 1.0F / square_root(squares / static_cast<float>(width) + eps);
        for_each_element(team, width,
                         [=](std::int64_t i) { out[i] = fused((in[i] - mean) * scale, weight[i], bias[i]); });
      });
}

void apply_norm(const Norm& norm, const float* x, std::int64_t num_rows, std::int64_t width, float* y) {
  switch (norm.kind) {
    case NormKind::rms:
      return rms_norm(x, num_rows, width, norm.weight, norm.eps, y);
    case NormKind::layer:
      METRO_REQUIRE(norm.bias != nullptr, "a LayerNorm without bias");
      return layer_norm(x, num_rows, width, norm.weight, norm.bias, norm.eps, y);
  }
  METRO_REQUIRE(false, "a norm of no kind");
}

}  // namespace metro
