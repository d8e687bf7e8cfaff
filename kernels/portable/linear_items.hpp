// Linear layers on a device: one matrix for whole rows, or one for each head of a row. Of elements T.
#pragma once

#include "kernels/head_linear.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/panel_product.hpp"

#include <cstdint>

namespace metro::portable {

// Work items: panels of one head and row block side by side, so that consecutive items read consecutive weights.
template <class T>
struct LinearItems {
  using Product = PanelProduct<T, 1>;
  HeadInputs x;
  const char* weights;
  std::int64_t bytes_of_head;
  float* y;
  std::int64_t num_rows;
  std::int64_t num_heads;
  std::int64_t out;
  PanelForm form;

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t panel = item % num_panels(out);
    const std::int64_t head = item / num_panels(out) % num_heads;
    const std::int64_t first_row = item / num_panels(out) / num_heads * block_rows;
    const std::int64_t rows = num_rows - first_row < block_rows ? num_rows - first_row : block_rows;
    const float* inputs = x.data + first_row * x.row_stride + head * x.head_stride;
    Product product(team);
    product.multiply({weights + head * bytes_of_head}, panel, form, rows,
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
void launch_linear(const char* name, const LinearItems<T>& items) {
  for_each_shaped_team(name, num_panels(items.out) * items.num_heads * num_row_blocks(items.num_rows),
                       LinearItems<T>::Product::shape, items);
}

}  // namespace metro::portable
