// Where the weights of experts come from. The step asks for (layer, expert) and does not know where they live.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "decoder/weight_loader.hpp"
#include "kernels/buffer.hpp"
#include "kernels/experts.hpp"
#include "placement/placement.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class ExpertStore {
 public:
  virtual ~ExpertStore() = default;
  // Weights of an expert that this rank hosts; valid until the next step. Throws Bug if the rank does not host it.
  virtual ExpertWeights acquire(std::int64_t moe_layer, std::int64_t expert) = 0;
  virtual std::int64_t num_bytes() const = 0;  // memory held
};

// All experts of this rank's slots stay in memory, packed. An expert with several slots on the rank is held once.
//
// The memory of a layer is a row of *places* of one expert each. A rank whose experts never change has as many places
// as it hosts experts; where they are `movable` it has as many as its slots could ever need, and an expert stays in its
// place for as long as the rank hosts it.
class ResidentExpertStore : public ExpertStore {
 public:
  // Loads the experts of this rank's slots, and only those, on num_kernel_threads() threads. Throws what load_units()
  // throws.
  ResidentExpertStore(const WeightReader& checkpoint, const Placement& placement, std::int64_t rank, bool movable);

  ExpertWeights acquire(std::int64_t moe_layer, std::int64_t expert) override;
  std::int64_t num_bytes() const override { return memory_.num_bytes(); }

  // The packed bytes of a hosted expert, memory of kernels: gate, up, down. Throws Bug if the rank does not host it.
  std::span<std::byte> packed(std::int64_t moe_layer, std::int64_t expert) const;

  // From now on the rank hosts `experts` (ascending, each once) in this layer. Those that it hosted before keep place
  // and content. The others, which are returned, have places of experts that left; their content is left to the caller.
  std::vector<std::int32_t> host(std::int64_t moe_layer, std::span<const std::int32_t> experts);

 private:
  struct Layer {
    ExpertWeights shape;  // without data
    std::int64_t expert_bytes = 0;
    std::byte* memory = nullptr;                // of the first place
    std::vector<std::int32_t> place_to_expert;  // -1: free
  };
  ExpertWeights weights_in(const Layer& layer, std::size_t place) const;

  std::int64_t num_experts_ = 0;
  RawBuffer memory_;
  std::vector<Layer> layers_;           // [num_moe_layers]
  std::vector<ExpertWeights> weights_;  // [num_moe_layers, num_experts]; gate.data == nullptr where not hosted
};

// Adds what is to be loaded for an expert of a model layer: its three matrices, packed one behind the other, gate, up,
// down. out: packed_expert_bytes() of the layer.
void add_expert_units(const WeightReader& checkpoint, std::int64_t layer, std::int64_t expert, std::span<std::byte> out,
                      std::vector<WeightUnit>& units);
// An expert of a model layer as it is packed, without data.
ExpertWeights expert_shape(const WeightReader& checkpoint, std::int64_t layer);
std::int64_t packed_expert_bytes(const ExpertWeights& shape);
std::int64_t packed_expert_bytes(const WeightReader& checkpoint, std::int64_t layer);

// Bytes that the store of `rank` holds.
std::int64_t resident_expert_bytes(const WeightReader& checkpoint, const Placement& placement, std::int64_t rank,
                                   bool movable);

// Of all ranks. [num_ranks]
std::vector<std::int64_t> resident_expert_bytes(const WeightReader& checkpoint, const Placement& placement,
                                                bool movable);

// Model layers that are MoE layers, in order: their index in this list is the moe_layer of placements and stores.
std::vector<std::int64_t> moe_layers_of(const ModelSpec& spec);

}  // namespace metro
