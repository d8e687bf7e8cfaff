// Linear layers of heads: those of linear.cpp, launched once for all heads.
#include "kernels/head_linear.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#if METRO_DEVICE_FORM
#include "kernels/portable/panel_product.hpp"
#else
#include "kernels/cpu/host_products.hpp"
#endif

#include <cstdint>

namespace metro {

namespace {

using namespace portable;

#if METRO_DEVICE_FORM

// Work items: panels of one head and row block side by side.
template <class T>
struct HeadLinearItems {
  using Product = PanelProduct<T, 1>;
  HeadInputs x;
  const char* weights;
  std::int64_t bytes_of_head;
  float* y;
  std::int64_t num_rows;
  std::int64_t num_heads;
  std::int64_t out;
  std::int64_t in;

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t panel = item % num_panels(out);
    const std::int64_t head = item / num_panels(out) % num_heads;
    const std::int64_t first_row = item / num_panels(out) / num_heads * block_rows;
    const std::int64_t rows = num_rows - first_row < block_rows ? num_rows - first_row : block_rows;
    const float* inputs = x.data + first_row * x.row_stride + head * x.head_stride;
    Product product(team);
    product.multiply({weights + head * bytes_of_head}, panel, {in, false}, rows,
                     [=, *this](std::int64_t r) { return inputs + r * x.row_stride; });
    for_each_element(team, rows * panel_columns, [&, *this](std::int64_t i) {
      const std::int64_t r = i / panel_columns;
      const std::int64_t column = panel * panel_columns + i % panel_columns;
      if (column < out) {
        y[((first_row + r) * num_heads + head) * out + column] = product.sum(0, r, i % panel_columns);
      }
    });
  }
};

template <class T>
void launch_heads(const HeadInputs& x, std::int64_t num_rows, const HeadMatrices& w, float* y) {
  for_each_shaped_team("linear_of_heads", num_panels(w.out) * w.num_heads * num_row_blocks(num_rows),
                       HeadLinearItems<T>::Product::shape,
                       HeadLinearItems<T>{x, static_cast<const char*>(w.data), w.bytes_of_head(), y, num_rows,
                                          w.num_heads, w.out, w.in});
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
