// Linear layers, the embedding, and two elementwise helpers.
#include "kernels/linear.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/math.hpp"
#if METRO_DEVICE_FORM
#include "kernels/portable/panel_product.hpp"
#else
#include "kernels/cpu/host_products.hpp"
#endif

namespace metro {

namespace {

using namespace portable;

#if METRO_DEVICE_FORM

// Work items: strips of one row block side by side, so that consecutive items read consecutive weights.
template <class T>
struct LinearItems {
  const float* x;
  const void* weights;
  float* y;
  std::int64_t num_rows;
  std::int64_t out;
  std::int64_t in;
  std::int64_t strips;

  KOKKOS_FUNCTION void operator()(std::int64_t item) const {
    const std::int64_t strip = item % strips;
    const std::int64_t first_row = item / strips * block_rows;
    const std::int64_t rows = num_rows - first_row < block_rows ? num_rows - first_row : block_rows;
    const std::int64_t first_column = strip * strip_columns;
    const std::int64_t columns = out - first_column < strip_columns ? out - first_column : strip_columns;
    if (columns <= 0) {
      return;  // padding of the last panel, when a strip is one column
    }
    StripResult result;
    multiply_strip<T>(x + first_row * in, rows, weights, strip, in, result);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* destination = y + (first_row + r) * out + first_column;
      for (std::int64_t column = 0; column < columns; ++column) {
        destination[column] = result.values[r][column];
      }
    }
  }
};

template <class T>
void launch_linear(const float* x, std::int64_t num_rows, const PackedMatrix& w, float* y) {
  const std::int64_t strips = num_strips(w.out);
  for_each_item("linear", strips * num_row_blocks(num_rows),
                LinearItems<T>{x, w.data, y, num_rows, w.out, w.in, strips});
}

#endif

template <class T>
void launch_embed(const PackedMatrix& table, const std::int32_t* ids, std::int64_t num_rows, float* y) {
  const std::int64_t in = table.in;
  const auto* packed = static_cast<const T*>(table.data);
  for_each_team(
      "embed", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const std::int64_t id = ids[row];
        const T* source = packed + id / panel_columns * panel_columns * in + id % panel_columns;
        float* destination = y + row * in;
        for_each_element(team, in, [=](std::int64_t k) { destination[k] = widened(source[k * panel_columns]); });
      });
}

}  // namespace

void linear(const float* x, std::int64_t num_rows, const PackedMatrix& w, float* y) {
  require_kernel_memory("linear", {{"x", x}, {"w", w.data}, {"y", y}});
#if METRO_DEVICE_FORM
  with_element_of(w.type, [&](auto element) { launch_linear<decltype(element)>(x, num_rows, w, y); });
#else
  ++launches_so_far;
  cpu::linear(x, num_rows, w, y);
#endif
}

void embed(const PackedMatrix& table, const std::int32_t* ids, std::int64_t num_rows, float* y) {
  METRO_REQUIRE(table.type != StoredType::int8, "an embedding is not stored as int8");
  require_kernel_memory("embed", {{"table", table.data}, {"ids", ids}, {"y", y}});
  if (table.type == StoredType::bf16) {
    launch_embed<std::uint16_t>(table, ids, num_rows, y);
  } else {
    launch_embed<float>(table, ids, num_rows, y);
  }
}

void add(const float* x, std::int64_t size, float* y) {
  require_kernel_memory("add", {{"x", x}, {"y", y}});
  // Elements in groups, so that an item is worth a launch on a host; one element per thread on a device.
  constexpr std::int64_t group = device_form ? 1 : 4096;
  for_each_item(
      "add", (size + group - 1) / group, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t end = (item + 1) * group < size ? (item + 1) * group : size;
        METRO_INDEPENDENT
        for (std::int64_t i = item * group; i < end; ++i) {
          y[i] = y[i] + x[i];
        }
      });
}

void gather_rows(const float* x, const std::int64_t* offsets, std::int64_t num_rows, std::int64_t width, float* y) {
  require_kernel_memory("gather_rows", {{"x", x}, {"offsets", offsets}, {"y", y}});
  for_each_team(
      "gather_rows", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* source = x + offsets[row];
        float* destination = y + row * width;
        for_each_element(team, width, [=](std::int64_t i) { destination[i] = source[i]; });
      });
}

}  // namespace metro
