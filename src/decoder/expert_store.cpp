#include "decoder/expert_store.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "checkpoint/layout.hpp"
#include "kernels/cpu_settings.hpp"
#include "placement/moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace metro {

namespace {

constexpr std::int32_t free_place = -1;

// Places of a rank in one layer.
std::int64_t num_places(const Placement& placement, std::int64_t moe_layer, std::int64_t rank, bool movable) {
  return movable ? std::min(placement.slots_per_rank, placement.num_experts)
                 : std::ssize(hosted_experts(placement, moe_layer, rank));
}

// The matrices one behind the other: gate, up, down.
ExpertWeights placed_at(ExpertWeights shape, const std::byte* memory) {
  shape.gate.data = memory;
  shape.up.data = memory + packed_bytes(shape.gate);
  shape.down.data = memory + packed_bytes(shape.gate) + packed_bytes(shape.up);
  return shape;
}

}  // namespace

void add_expert_units(const WeightReader& checkpoint, std::int64_t layer, std::int64_t expert, std::span<std::byte> out,
                      std::vector<WeightUnit>& units) {
  const ExpertWeights shape = expert_shape(checkpoint, layer);
  METRO_REQUIRE(std::ssize(out) == packed_expert_bytes(shape), fmt::format("{} bytes", out.size()));
  const ExpertWeights there = placed_at(shape, out.data());
  const auto part_of = [&](const PackedMatrix& matrix) {
    const std::int64_t place = static_cast<const std::byte*>(matrix.data) - out.data();
    return UnitPart{matrix.out, matrix.in, out.data() + place};
  };
  units.push_back(weight_unit(checkpoint, checkpoint.info(layout::in_layer(layer, layout::experts_gate_up)), expert,
                              {part_of(there.gate), part_of(there.up)}));
  units.push_back(weight_unit(checkpoint, checkpoint.info(layout::in_layer(layer, layout::experts_down)), expert,
                              {part_of(there.down)}));
}

ExpertWeights expert_shape(const WeightReader& checkpoint, std::int64_t layer) {
  const ModelSpec& spec = checkpoint.spec();
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t width = spec.moe.intermediate_size;
  const auto matrix = [&](const char* name, std::int64_t out, std::int64_t in) {
    const TensorInfo& tensor = checkpoint.info(layout::in_layer(layer, name));
    const bool has_bias = checkpoint.tensors().count(layout::bias_of(tensor.dataset)) != 0;
    return PackedMatrix{nullptr, tensor.type, out, in, has_bias};
  };
  const PackedMatrix half = matrix(layout::experts_gate_up, width, hidden);
  return {half, half, matrix(layout::experts_down, hidden, width), spec.moe.activation};
}

std::int64_t packed_expert_bytes(const ExpertWeights& shape) {
  return packed_bytes(shape.gate) + packed_bytes(shape.up) + packed_bytes(shape.down);
}

std::int64_t packed_expert_bytes(const WeightReader& checkpoint, std::int64_t layer) {
  return packed_expert_bytes(expert_shape(checkpoint, layer));
}

std::vector<std::int64_t> moe_layers_of(const ModelSpec& spec) {
  std::vector<std::int64_t> moe_layers;
  for (std::int64_t layer = 0; layer < spec.num_layers; ++layer) {
    if (spec.layers[static_cast<std::size_t>(layer)] == LayerKind::moe) {
      moe_layers.push_back(layer);
    }
  }
  return moe_layers;
}

std::int64_t resident_expert_bytes(const WeightReader& checkpoint, const Placement& placement, std::int64_t rank,
                                   bool movable) {
  const std::vector<std::int64_t> layers = moe_layers_of(checkpoint.spec());
  std::int64_t num_bytes = 0;
  for (std::size_t moe_layer = 0; moe_layer < layers.size(); ++moe_layer) {
    num_bytes += num_places(placement, static_cast<std::int64_t>(moe_layer), rank, movable) *
                 packed_expert_bytes(checkpoint, layers[moe_layer]);
  }
  return num_bytes;
}

std::vector<std::int64_t> resident_expert_bytes(const WeightReader& checkpoint, const Placement& placement,
                                                bool movable) {
  const std::vector<std::int64_t> layers = moe_layers_of(checkpoint.spec());
  std::vector<std::int64_t> bytes_of_rank(at(placement.num_ranks), 0);
  for (std::size_t moe_layer = 0; moe_layer < layers.size(); ++moe_layer) {
    const std::int64_t expert_bytes = packed_expert_bytes(checkpoint, layers[moe_layer]);
    for (std::int64_t rank = 0; rank < placement.num_ranks; ++rank) {
      bytes_of_rank[at(rank)] +=
          num_places(placement, static_cast<std::int64_t>(moe_layer), rank, movable) * expert_bytes;
    }
  }
  return bytes_of_rank;
}

ResidentExpertStore::ResidentExpertStore(const WeightReader& checkpoint, const Placement& placement, std::int64_t rank,
                                         bool movable)
    : num_experts_(placement.num_experts),
      memory_("experts", resident_expert_bytes(checkpoint, placement, rank, movable), FirstContent::unspecified) {
  const std::vector<std::int64_t> model_layers = moe_layers_of(checkpoint.spec());
  METRO_REQUIRE(std::ssize(model_layers) == placement.num_layers, "placement does not fit the model");
  weights_.resize(model_layers.size() * at(num_experts_));
  std::vector<WeightUnit> units;
  std::byte* memory = memory_.data();
  for (std::int64_t moe_layer = 0; moe_layer < placement.num_layers; ++moe_layer) {
    const std::int64_t model_layer = model_layers[at(moe_layer)];
    Layer& layer = layers_.emplace_back();
    layer.shape = expert_shape(checkpoint, model_layer);
    layer.expert_bytes = packed_expert_bytes(layer.shape);
    layer.memory = memory;
    layer.place_to_expert.assign(at(num_places(placement, moe_layer, rank, movable)), free_place);
    memory += std::ssize(layer.place_to_expert) * layer.expert_bytes;
    for (const std::int32_t expert : host(moe_layer, hosted_experts(placement, moe_layer, rank))) {
      add_expert_units(checkpoint, model_layer, expert, packed(moe_layer, expert), units);
    }
  }
  load_units(checkpoint, std::move(units), num_kernel_threads());
}

ExpertWeights ResidentExpertStore::weights_in(const Layer& layer, std::size_t place) const {
  return placed_at(layer.shape, layer.memory + static_cast<std::int64_t>(place) * layer.expert_bytes);
}

std::vector<std::int32_t> ResidentExpertStore::host(std::int64_t moe_layer, std::span<const std::int32_t> experts) {
  Layer& layer = layers_[at(moe_layer)];
  ExpertWeights* weights = weights_.data() + moe_layer * num_experts_;
  METRO_REQUIRE(experts.size() <= layer.place_to_expert.size(), fmt::format("no place for {} experts", experts.size()));
  std::vector<std::size_t> free_places;
  for (std::size_t place = 0; place < layer.place_to_expert.size(); ++place) {
    std::int32_t& expert = layer.place_to_expert[place];
    if (expert != free_place && !std::binary_search(experts.begin(), experts.end(), expert)) {
      weights[expert] = {};
      expert = free_place;
    }
    if (expert == free_place) {
      free_places.push_back(place);
    }
  }
  std::vector<std::int32_t> arrivals;
  for (const std::int32_t expert : experts) {
    if (weights[expert].gate.data == nullptr) {
      const std::size_t place = free_places[arrivals.size()];
      layer.place_to_expert[place] = expert;
      weights[expert] = weights_in(layer, place);
      arrivals.push_back(expert);
    }
  }
  return arrivals;
}

ExpertWeights ResidentExpertStore::acquire(std::int64_t moe_layer, std::int64_t expert) {
  const ExpertWeights& weights = weights_[at(moe_layer * num_experts_ + expert)];
  METRO_REQUIRE(weights.gate.data != nullptr, fmt::format("expert {} of MoE layer {} is not here", expert, moe_layer));
  return weights;
}

std::span<std::byte> ResidentExpertStore::packed(std::int64_t moe_layer, std::int64_t expert) const {
  const Layer& layer = layers_[at(moe_layer)];
  const auto found = std::find(layer.place_to_expert.begin(), layer.place_to_expert.end(), expert);
  METRO_REQUIRE(found != layer.place_to_expert.end(),
                fmt::format("expert {} of MoE layer {} is not here", expert, moe_layer));
  return {layer.memory + (found - layer.place_to_expert.begin()) * layer.expert_bytes, at(layer.expert_bytes)};
}

}  // namespace metro
