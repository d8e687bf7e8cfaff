// Gated additions and clamping.
#include "kernels/elementwise.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/math.hpp"

#include <string>

namespace metro {

using namespace portable;

void add_gated(const float* x, const float* gates, std::int64_t num_rows, std::int64_t width, float* residual) {
  require_kernel_memory("add_gated", {{"x", x}, {"gates", gates}, {"residual", residual}});
  for_each_team(
      "add_gated", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float factor = sigmoid(gates[row]);
        const float* in = x + row * width;
        float* out = residual + row * width;
        for_each_element(team, width, [=](std::int64_t i) { out[i] = fused(factor, in[i], out[i]); });
      });
}

void clamp(float limit, std::int64_t size, float* x) {
  METRO_REQUIRE(limit > 0.0F, std::to_string(limit));
  require_kernel_memory("clamp", {{"x", x}});
  // Elements in groups, so that an item is worth a launch on a host; one element per thread on a device.
  constexpr std::int64_t group = device_form ? 1 : 4096;
  for_each_item(
      "clamp", (size + group - 1) / group, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t end = (item + 1) * group < size ? (item + 1) * group : size;
        METRO_INDEPENDENT
        for (std::int64_t i = item * group; i < end; ++i) {
          // Comparisons that are false for NaN.
          const float from_below = x[i] < -limit ? -limit : x[i];
          x[i] = from_below > limit ? limit : from_below;
        }
      });
}

}  // namespace metro
