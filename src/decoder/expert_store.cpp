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

}  // namespace

void add_expert_units(const WeightReader& checkpoint, std::int64_t layer, std::int64_t expert, std::span<std::byte> out,
                      std::vector<WeightUnit>& units) {
  const std::int64_t hidden = checkpoint.spec().hidden_size;
  const std::int64_t width = checkpoint.spec().moe.intermediate_size;
  const TensorInfo& gate_up = checkpoint.info(layout::in_layer(layer, layout::experts_gate_up));
  const TensorInfo& down = checkpoint.info(layout::in_layer(layer, layout::experts_down));
  const std::int64_t packed_half = packed_bytes(gate_up.type, width, hidden);
  METRO_REQUIRE(std::ssize(out) == packed_expert_bytes(checkpoint, layer), fmt::format("{} bytes", out.size()));
  units.push_back(weight_unit(checkpoint, gate_up, expert,
                              {{width, hidden, out.data()}, {width, hidden, out.data() + packed_half}}));
  units.push_back(weight_unit(checkpoint, down, expert, {{hidden, width, out.data() + 2 * packed_half}}));
}

std::int64_t packed_expert_bytes(const WeightReader& checkpoint, std::int64_t layer) {
  const ModelSpec& spec = checkpoint.spec();
  const StoredType gate_up = checkpoint.info(layout::in_layer(layer, layout::experts_gate_up)).type;
  const StoredType down = checkpoint.info(layout::in_layer(layer, layout::experts_down)).type;
  return 2 * packed_bytes(gate_up, spec.moe.intermediate_size, spec.hidden_size) +
         packed_bytes(down, spec.hidden_size, spec.moe.intermediate_size);
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
      hidden_size_(checkpoint.spec().hidden_size),
      width_(checkpoint.spec().moe.intermediate_size),
      memory_("experts", resident_expert_bytes(checkpoint, placement, rank, movable), FirstContent::unspecified) {
  const std::vector<std::int64_t> model_layers = moe_layers_of(checkpoint.spec());
  METRO_REQUIRE(std::ssize(model_layers) == placement.num_layers, "placement does not fit the model");
  weights_.resize(model_layers.size() * at(num_experts_));
  std::vector<WeightUnit> units;
  std::byte* memory = memory_.data();
  for (std::int64_t moe_layer = 0; moe_layer < placement.num_layers; ++moe_layer) {
    const std::int64_t model_layer = model_layers[at(moe_layer)];
    Layer& layer = layers_.emplace_back();
    layer.gate_up = checkpoint.info(layout::in_layer(model_layer, layout::experts_gate_up)).type;
    layer.down = checkpoint.info(layout::in_layer(model_layer, layout::experts_down)).type;
    layer.expert_bytes = packed_expert_bytes(checkpoint, model_layer);
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
  const std::byte* memory = layer.memory + static_cast<std::int64_t>(place) * layer.expert_bytes;
  const std::int64_t packed_half = packed_bytes(layer.gate_up, width_, hidden_size_);
  return {.gate = {memory, layer.gate_up, width_, hidden_size_},
          .up = {memory + packed_half, layer.gate_up, width_, hidden_size_},
          .down = {memory + 2 * packed_half, layer.down, hidden_size_, width_}};
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
