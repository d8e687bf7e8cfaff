// Where the weights of experts come from. The step asks for (layer, expert) and does not know where they live.
#pragma once

#include "checkpoint/checkpoint_reader.hpp"
#include "kernels/buffer.hpp"
#include "kernels/experts.hpp"
#include "placement/placement.hpp"

#include <cstdint>
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
class ResidentExpertStore : public ExpertStore {
 public:
  // Reads the experts of this rank's slots, and only those.
  ResidentExpertStore(CheckpointReader& checkpoint, const Placement& placement, std::int64_t rank);

  ExpertWeights acquire(std::int64_t moe_layer, std::int64_t expert) override;
  std::int64_t num_bytes() const override { return memory_.num_bytes(); }

 private:
  std::int64_t num_experts_ = 0;
  RawBuffer memory_;
  std::vector<ExpertWeights> weights_;  // [num_moe_layers, num_experts]; gate.data == nullptr where not hosted
};

// Distinct experts of a rank's slots in one layer, ascending.
std::vector<std::int32_t> hosted_experts(const Placement& placement, std::int64_t moe_layer, std::int64_t rank);

// Bytes of all experts that `rank` hosts, packed.
std::int64_t hosted_expert_bytes(const CheckpointReader& checkpoint, const Placement& placement, std::int64_t rank);

// Model layers that are MoE layers, in order: their index in this list is the moe_layer of placements and stores.
std::vector<std::int64_t> moe_layers_of(const ModelSpec& spec);

}  // namespace metro
