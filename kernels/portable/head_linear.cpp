// Linear layers of heads: those of linear.cpp, launched once for all heads.
#include "kernels/head_linear.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#if METRO_DEVICE_FORM
#include "kernels/portable/linear_items.hpp"
#else
#include "kernels/cpu/host_products.hpp"
#endif

#include <cstdint>

namespace metro {

namespace {

using namespace portable;

#if METRO_DEVICE_FORM

template <class T>
void launch_heads(const HeadInputs& x, std::int64_t num_rows, const HeadMatrices& w, float* y) {
  launch_linear<T>(
      "linear_of_heads",
      {x, static_cast<const char*>(w.data), w.bytes_of_head(), y, num_rows, w.num_heads, w.out, {w.in, false}});
}

#endif

}  // namespace

void linear_of_heads(const HeadInputs& x, std::int64_t num_rows, const HeadMatrices& w, float* y) {
  METRO_REQUIRE(!has_scales(w.type), "matrices of heads have no scales");
  require_kernel_memory("linear_of_heads", {{"x", x.data}, {"w", w.data}, {"y", y}});
#if METRO_DEVICE_FORM
  if (w.type == StoredType::bf16) {
    launch_heads<std::uint16_t>(x, num_rows, w, y);
  } else {
    launch_heads<float>(x, num_rows, w, y);
  }
#else
  ++launches_so_far;
  cpu::linear_of_heads(x, num_rows, w, y);
#endif
}

}  // namespace metro
