// The two kernels of an expert FFN on a device, for work lists of the host (experts.hpp) and of the device
// (listed_experts.hpp).
#pragma once

#include "kernels/listed_experts.hpp"
#include "kernels/portable/activation.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/panel_product.hpp"

#include <cstdint>

namespace metro::portable {

// The blocks of rows of one item: it computes rows first, first + step, ... below `end`, block_rows from each on.
struct ItemRows {
  std::int64_t first, end, step;
};

// Item = (split * num_entries + entry) * panels + panel: entries lie side by side and read weights in the order in
// which those lie; block b of an entry belongs to split b mod num_splits, so that what one launch can share out does
// not depend on how many rows an entry turns out to have.
struct ExpertItem {
  std::int64_t split, entry, panel;

  KOKKOS_FUNCTION ExpertItem(std::int64_t item, std::int64_t num_entries, std::int64_t panels)
      : split(item / panels / num_entries), entry(item / panels % num_entries), panel(item % panels) {}

  KOKKOS_FUNCTION ItemRows rows(std::int64_t first_row, std::int64_t end_row, std::int64_t num_splits) const {
    return {first_row + split * block_rows, end_row, num_splits * block_rows};
  }
};

// A Source has num_entries entries, each with its weights and its rows first_row(entry) .. end_row(entry) - 1; row i
// has its input at input(i, width).

// What both kernels run: multiply(product, weights, first, num_rows) for every block of rows of an item, then
// store(row, column, product, r, c) for the elements of its panel, product.sum(.., r, c) being that of row `row`.
template <class Product, class Source, class Multiply, class Store>
KOKKOS_FORCEINLINE_FUNCTION void run_item(const Team& team, const Source& source, const ExpertItem& item,
                                          std::int64_t num_splits, std::int64_t out, const Multiply& multiply,
                                          const Store& store) {
  const ItemRows rows = item.rows(source.first_row(item.entry), source.end_row(item.entry), num_splits);
  if (rows.first >= rows.end) {
    return;
  }
  const ExpertWeightPointers weights = source.weights(item.entry);
  Product product(team);
  for (std::int64_t first = rows.first; first < rows.end; first += rows.step) {
    const std::int64_t num_rows = rows.end - first < block_rows ? rows.end - first : block_rows;
    multiply(product, weights, first, num_rows);
    for_each_element(team, num_rows * panel_columns, [&](std::int64_t i) {
      const std::int64_t column = item.panel * panel_columns + i % panel_columns;
      if (column < out) {
        store(first + i / panel_columns, column, product, i / panel_columns, i % panel_columns);
      }
    });
  }
}

// hidden = activation(gate(x), up(x))
template <class T, class Source>
struct GateUpItems {
  using Product = PanelProduct<T, 2>;
  static constexpr bool never_recorded = NeverRecorded<Source>;
  Source source;
  float* hidden;
  PanelForm form;
  Activation activation;
  std::int64_t out;
  std::int64_t num_splits;

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item_idx) const {
    const ExpertItem item(item_idx, source.num_entries, num_panels(out));
    run_item<Product>(
        team, source, item, num_splits, out,
        [&](Product& product, const ExpertWeightPointers& weights, std::int64_t first, std::int64_t num_rows) {
          product.multiply({weights.gate, weights.up}, item.panel, form, num_rows,
                           [&](std::int64_t r) { return source.input(first + r, form.in); });
        },
        [&](std::int64_t row, std::int64_t column, const Product& product, std::int64_t r, std::int64_t c) {
          hidden[row * out + column] = activated(activation, product.sum(0, r, c), product.sum(1, r, c));
        });
  }
};

// y = down(hidden)
template <class T, class Source>
struct DownItems {
  using Product = PanelProduct<T, 1>;
  static constexpr bool never_recorded = NeverRecorded<Source>;
  Source source;
  const float* hidden;
  float* y;
  PanelForm form;
  std::int64_t out;
  std::int64_t num_splits;

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item_idx) const {
    const ExpertItem item(item_idx, source.num_entries, num_panels(out));
    run_item<Product>(
        team, source, item, num_splits, out,
        [&](Product& product, const ExpertWeightPointers& weights, std::int64_t first, std::int64_t num_rows) {
          product.multiply({weights.down}, item.panel, form, num_rows,
                           [&](std::int64_t r) { return hidden + (first + r) * form.in; });
        },
        [&](std::int64_t row, std::int64_t column, const Product& product, std::int64_t r, std::int64_t c) {
          y[row * out + column] = product.sum(0, r, c);
        });
  }
};

// Launches both, each num_splits items for every entry and panel. shape: any of the weights.
template <class Source>
void launch_experts(const Source& source, const ExpertWeights& shape, std::int64_t num_splits, float* hidden,
                    float* y) {
  const std::int64_t width = shape.gate.in;
  const std::int64_t hidden_width = shape.gate.out;
  const std::int64_t num_units = num_splits * source.num_entries;
  with_element_of(shape.gate.type, [&](auto element) {
    using Items = GateUpItems<decltype(element), Source>;
    for_each_shaped_team(
        "expert_gate_up", num_units * num_panels(hidden_width), Items::Product::shape,
        Items{source, hidden, {width, shape.gate.has_bias}, shape.activation, hidden_width, num_splits});
  });
  with_element_of(shape.down.type, [&](auto element) {
    using Items = DownItems<decltype(element), Source>;
    for_each_shaped_team("expert_down", num_units * num_panels(width), Items::Product::shape,
                         Items{source, hidden, y, {hidden_width, shape.down.has_bias}, width, num_splits});
  });
}

}  // namespace metro::portable
