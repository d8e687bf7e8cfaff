// Linear layers, the embedding, and two elementwise helpers.
#include "kernels/linear.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/math.hpp"
#if METRO_DEVICE_FORM
#include "kernels/portable/linear_items.hpp"
#else
#include "kernels/cpu/host_products.hpp"
#endif

#include <cstdint>
#include <cstring>

namespace metro {

namespace {

using namespace portable;

template <class T>
void launch_embed(const PackedMatrix& table, const std::int32_t* ids, std::int64_t num_rows, float* y) {
  const std::int64_t in = table.in;
  const auto* packed = static_cast<const T*>(table.data);
  for_each_team(
      "embed", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const std::int64_t id = ids[row];
        float* destination = y + row * in;
        if (id < 0) {
          for_each_element(team, in, [=](std::int64_t k) { destination[k] = 0.0F; });
          return;
        }
        const T* source = packed + id / panel_columns * panel_columns * in + id % panel_columns;
        for_each_element(team, in, [=](std::int64_t k) { destination[k] = widened(source[k * panel_columns]); });
      });
}

struct RowCopy {
  static constexpr auto word_bytes = static_cast<std::int64_t>(sizeof(std::uint32_t));
  const std::uint32_t* from;
  RowPlaces from_places;
  std::uint32_t* to;
  RowPlaces to_places;
  std::int64_t width;

  KOKKOS_INLINE_FUNCTION static std::int64_t begin(const RowPlaces& places, std::int64_t row) {
    return places.offsets != nullptr ? places.offsets[row] : row * places.stride;
  }

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const std::uint32_t* source = from + begin(from_places, row);
    std::uint32_t* destination = to + begin(to_places, row);
    // As bytes: the words may be floats or integers.
    if constexpr (device_form) {
      for_each_element(team, width, [=](std::int64_t i) { memcpy(destination + i, source + i, word_bytes); });
    } else {
      memcpy(destination, source, static_cast<std::size_t>(width * word_bytes));
    }
  }
};

}  // namespace

void linear(const float* x, std::int64_t num_rows, const PackedMatrix& w, float* y) {
  require_kernel_memory("linear", {{"x", x}, {"w", w.data}, {"y", y}});
#if METRO_DEVICE_FORM
  with_element_of(w.type, [&](auto element) {
    launch_linear<decltype(element)>(
        "linear", {{x, w.in, 0}, static_cast<const char*>(w.data), 0, y, num_rows, 1, w.out, {w.in, w.has_bias}});
  });
#else
  ++launches_so_far;
  cpu::linear(x, num_rows, w, y);
#endif
}

void embed(const PackedMatrix& table, const std::int32_t* ids, std::int64_t num_rows, float* y) {
  METRO_REQUIRE(!has_scales(table.type), "an embedding has no scales");
  METRO_REQUIRE(!table.has_bias, "an embedding has no biases");
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

void copy_rows(const void* from, const RowPlaces& from_places, void* to, const RowPlaces& to_places,
               std::int64_t num_rows, std::int64_t width) {
  require_kernel_memory(
      "copy_rows",
      {{"from", from}, {"from_places", from_places.offsets}, {"to", to}, {"to_places", to_places.offsets}});
  for_each_team(
      "copy_rows", num_rows,
      RowCopy{static_cast<const std::uint32_t*>(from), from_places, static_cast<std::uint32_t*>(to), to_places, width},
      2 * num_rows * width * RowCopy::word_bytes);
}

}  // namespace metro
