#include "decoder/expert_store.hpp"

#include "base/error.hpp"
#include "checkpoint/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

namespace {

std::int64_t index(std::int64_t moe_layer, std::int64_t num_experts, std::int64_t expert) {
  return moe_layer * num_experts + expert;
}

// Reads the two tensors of one expert and packs its three matrices one behind the other at `memory`.
ExpertWeights load_expert(CheckpointReader& checkpoint, std::int64_t layer, std::int64_t expert,
                          std::vector<std::byte>& staging, std::byte* memory) {
  const std::int64_t hidden = checkpoint.spec().hidden_size;
  const std::int64_t width = checkpoint.spec().moe.intermediate_size;
  const std::string gate_up = layout::in_layer(layer, layout::experts_gate_up);
  const std::string down = layout::in_layer(layer, layout::experts_down);
  const StoredType gate_up_type = checkpoint.info(gate_up).type;
  const StoredType down_type = checkpoint.info(down).type;
  const std::int64_t half_bytes = width * hidden * bytes_of(gate_up_type);
  const std::int64_t packed_half = packed_bytes(gate_up_type, width, hidden);

  ExpertWeights weights;
  staging.resize(static_cast<std::size_t>(2 * half_bytes));
  checkpoint.read_expert(gate_up, expert, staging);
  weights.gate = pack(gate_up_type, width, hidden, staging.data(), memory);
  weights.up = pack(gate_up_type, width, hidden, staging.data() + half_bytes, memory + packed_half);

  staging.resize(static_cast<std::size_t>(hidden * width * bytes_of(down_type)));
  checkpoint.read_expert(down, expert, staging);
  weights.down = pack(down_type, hidden, width, staging.data(), memory + 2 * packed_half);
  return weights;
}

std::int64_t packed_expert_bytes_of_layer(const CheckpointReader& checkpoint, std::int64_t layer) {
  const ModelSpec& spec = checkpoint.spec();
  const StoredType gate_up = checkpoint.info(layout::in_layer(layer, layout::experts_gate_up)).type;
  const StoredType down = checkpoint.info(layout::in_layer(layer, layout::experts_down)).type;
  return 2 * packed_bytes(gate_up, spec.moe.intermediate_size, spec.hidden_size) +
         packed_bytes(down, spec.hidden_size, spec.moe.intermediate_size);
}

}  // namespace

std::vector<std::int64_t> moe_layers_of(const ModelSpec& spec) {
  std::vector<std::int64_t> moe_layers;
  for (std::int64_t layer = 0; layer < spec.num_layers; ++layer) {
    if (spec.layers[static_cast<std::size_t>(layer)] == LayerKind::moe) {
      moe_layers.push_back(layer);
    }
  }
  return moe_layers;
}

std::vector<std::int32_t> hosted_experts(const Placement& placement, std::int64_t moe_layer, std::int64_t rank) {
  const auto slots = placement.layer(moe_layer).subspan(static_cast<std::size_t>(rank * placement.slots_per_rank),
                                                        static_cast<std::size_t>(placement.slots_per_rank));
  std::vector<std::int32_t> experts(slots.begin(), slots.end());
  std::erase(experts, Placement::empty_slot);
  std::sort(experts.begin(), experts.end());
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
  return experts;
}

std::int64_t hosted_expert_bytes(const CheckpointReader& checkpoint, const Placement& placement, std::int64_t rank) {
  const std::vector<std::int64_t> layers = moe_layers_of(checkpoint.spec());
  std::int64_t num_bytes = 0;
  for (std::size_t moe_layer = 0; moe_layer < layers.size(); ++moe_layer) {
    const auto experts = hosted_experts(placement, static_cast<std::int64_t>(moe_layer), rank);
    num_bytes +=
        static_cast<std::int64_t>(experts.size()) * packed_expert_bytes_of_layer(checkpoint, layers[moe_layer]);
  }
  return num_bytes;
}

ResidentExpertStore::ResidentExpertStore(CheckpointReader& checkpoint, const Placement& placement, std::int64_t rank)
    : num_experts_(placement.num_experts), memory_("experts", hosted_expert_bytes(checkpoint, placement, rank)) {
  const std::vector<std::int64_t> layers = moe_layers_of(checkpoint.spec());
  METRO_REQUIRE(static_cast<std::int64_t>(layers.size()) == placement.num_layers, "placement does not fit the model");
  weights_.resize(layers.size() * static_cast<std::size_t>(num_experts_));
  std::vector<std::byte> staging;
  std::byte* memory = memory_.data();
  for (std::int64_t moe_layer = 0; moe_layer < placement.num_layers; ++moe_layer) {
    const std::int64_t layer = layers[static_cast<std::size_t>(moe_layer)];
    for (const std::int32_t expert : hosted_experts(placement, moe_layer, rank)) {
      weights_[static_cast<std::size_t>(index(moe_layer, num_experts_, expert))] =
          load_expert(checkpoint, layer, expert, staging, memory);
      memory += packed_expert_bytes_of_layer(checkpoint, layer);
    }
  }
}

ExpertWeights ResidentExpertStore::acquire(std::int64_t moe_layer, std::int64_t expert) {
  const ExpertWeights& weights = weights_[static_cast<std::size_t>(index(moe_layer, num_experts_, expert))];
  METRO_REQUIRE(weights.gate.data != nullptr, fmt::format("expert {} of MoE layer {} is not here", expert, moe_layer));
  return weights;
}

}  // namespace metro
