// Experts as lists of products for cuBLAS. A panel of packed weights, [K][32], is to cuBLAS a 32 x K matrix with
// leading dimension 32; rows of activations, [rows][K], are a K x rows matrix with leading dimension K; and of the
// outputs, [rows][N], panel p computes rows 32 p, ... of an N x rows matrix. So weights are used as they lie in memory.
#include "kernels/grouped_experts.hpp"

#include "base/error.hpp"
#include "kernels/bf16.hpp"
#include "kernels/cuda/grouped_gemm.hpp"
#include "kernels/packed_matrix.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>

namespace metro {

namespace {

// Matrices that begin at a multiple of 16 bytes: so say the documentation's rules for the fast kernels.
constexpr std::int64_t columns_aligned = 8;

constexpr std::int64_t groups_of_matrix = 2;  // whole panels, and what is left of the last

std::int64_t num_panels(std::int64_t out) {
  return (out + panel_columns - 1) / panel_columns;
}

// y [rows, weights.out] of x [rows, weights.in].
struct RowProduct {
  const PackedMatrix* weights;
  const std::uint16_t* x;
  std::uint16_t* y;

  const void* panel(std::int64_t panel_idx) const {
    return static_cast<const std::byte*>(weights->data) + panel_idx * panel_bytes(*weights);
  }
};

// Of matrices of one shape.
void add_products(cuda::GroupedProducts& list, std::int64_t num_rows, std::initializer_list<RowProduct> products) {
  const std::int64_t in = products.begin()->weights->in;
  const std::int64_t out = products.begin()->weights->out;
  const std::int64_t whole_panels = out / panel_columns;
  const auto add_group = [&](std::int64_t columns, std::int64_t first_panel, std::int64_t end_panel) {
    if (columns == 0 || first_panel == end_panel) {
      return;
    }
    list.begin_group({columns, num_rows, in, panel_columns, in, out});
    for (const RowProduct& product : products) {
      for (std::int64_t panel = first_panel; panel < end_panel; ++panel) {
        list.add(product.panel(panel), product.x, product.y + panel * panel_columns);
      }
    }
  };
  add_group(panel_columns, 0, whole_panels);
  add_group(out % panel_columns, whole_panels, whole_panels + 1);
}

}  // namespace

struct GroupedExperts::Native {
  Native(std::int64_t width, std::int64_t hidden_width, std::int64_t most_experts)
      : hidden_size(width),
        intermediate_size(hidden_width),
        gate_up(groups_of_matrix * most_experts, 2 * num_panels(hidden_width) * most_experts),
        down(groups_of_matrix * most_experts, num_panels(width) * most_experts) {}

  // Rows of `item` in arrays of all rows.
  void add(const ExpertWork& item, const std::uint16_t* x, std::uint16_t* gate, std::uint16_t* up, std::uint16_t* y) {
    const ExpertWeights& weights = item.weights;
    METRO_REQUIRE(why_not(weights).empty() && weights.gate.in == hidden_size && weights.gate.out == intermediate_size &&
                      same_shape(weights.up, weights.gate) && weights.down.in == intermediate_size &&
                      weights.down.out == hidden_size,
                  "experts of another kind than those of the list");
    if (item.num_rows == 0) {
      return;
    }
    const std::int64_t of_hidden = item.first_row * intermediate_size;
    const std::int64_t of_row = item.first_row * hidden_size;
    add_products(gate_up, item.num_rows,
                 {{&weights.gate, x + of_row, gate + of_hidden}, {&weights.up, x + of_row, up + of_hidden}});
    add_products(down, item.num_rows, {{&weights.down, gate + of_hidden, y + of_row}});
  }

  std::int64_t hidden_size, intermediate_size;
  cuda::Cublas cublas;
  cuda::GroupedProducts gate_up, down;
};

bool GroupedExperts::is_supported() {
  return true;
}

std::string GroupedExperts::why_not(const ExpertWeights& shape) {
  for (const PackedMatrix* matrix : {&shape.gate, &shape.up, &shape.down}) {
    if (matrix->type != StoredType::bf16) {
      return std::string("the product of cuBLAS takes weights in bf16, these are ") + name_of(matrix->type);
    }
    if (matrix->has_bias) {
      return "the product of cuBLAS adds no biases, these experts have some";
    }
  }
  if (shape.activation.kind != ActivationKind::silu) {
    return "with the product of cuBLAS the activation is silu, these experts have another";
  }
  for (const std::int64_t width : {shape.gate.in, shape.gate.out}) {
    if (width % columns_aligned != 0) {
      return "the product of cuBLAS takes widths that are multiples of " + std::to_string(columns_aligned) +
             ", one is " + std::to_string(width);
    }
  }
  return {};
}

GroupedExperts::GroupedExperts(std::int64_t hidden_size, std::int64_t intermediate_size, std::int64_t most_experts)
    : native_(std::make_unique<Native>(hidden_size, intermediate_size, most_experts)) {}
GroupedExperts::~GroupedExperts() = default;
GroupedExperts::GroupedExperts(GroupedExperts&& other) noexcept = default;
GroupedExperts& GroupedExperts::operator=(GroupedExperts&& other) noexcept = default;

// No array of its own: each one of fp32 has room for two of bf16, and is free when they are needed.
void GroupedExperts::run(std::span<const ExpertWork> work, float* x, float* hidden, float* y) {
  std::int64_t num_rows = 0;
  for (const ExpertWork& item : work) {
    num_rows = std::max(num_rows, item.num_rows == 0 ? 0 : item.first_row + item.num_rows);
  }
  if (num_rows == 0) {
    return;
  }
  const std::int64_t num_hidden = num_rows * native_->intermediate_size;
  const std::int64_t num_outputs = num_rows * native_->hidden_size;
  auto* const gate = reinterpret_cast<std::uint16_t*>(hidden);
  auto* const up = gate + num_hidden;
  auto* const rounded_x = reinterpret_cast<std::uint16_t*>(y);
  auto* const rounded_y = reinterpret_cast<std::uint16_t*>(x);  // x has been read by then

  native_->gate_up.clear();
  native_->down.clear();
  for (const ExpertWork& item : work) {
    native_->add(item, rounded_x, gate, up, rounded_y);
  }
  round_to_bf16(x, num_outputs, rounded_x);
  native_->gate_up.enqueue(native_->cublas);
  silu_times_bf16(gate, up, num_hidden);
  native_->down.enqueue(native_->cublas);
  widen_bf16_array(rounded_y, num_outputs, y);
}

std::int64_t GroupedExperts::num_bytes() const {
  return native_->cublas.num_bytes() + native_->gate_up.num_bytes() + native_->down.num_bytes();
}

std::int64_t GroupedExperts::planned_bytes(std::int64_t hidden_size, std::int64_t intermediate_size,
                                           std::int64_t most_experts) {
  const std::int64_t most_products = (2 * num_panels(intermediate_size) + num_panels(hidden_size)) * most_experts;
  return cuda::Cublas::workspace_bytes + cuda::GroupedProducts::planned_bytes(most_products);
}

}  // namespace metro
