// Rebalancing: every so many steps the rows that experts received since the last time make a new placement, and weights
// and routing switch to it before the next step, on all ranks. Completions do not change; docs/placement.md.
#pragma once

#include "decoder/decoder.hpp"
#include "decoder/step_observer.hpp"
#include "placement/placement.hpp"
#include "report/run_records.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace metro {

// Counts the rows that this rank's router sends to every expert, and passes on what it sees.
class LoadCounter : public StepObserver {
 public:
  LoadCounter(std::int64_t num_moe_layers, std::int64_t num_experts);

  // Whom else to show the next steps; may be null.
  void forward_to(StepObserver* next) { next_ = next; }

  void router_choices(std::int64_t moe_layer, std::int64_t num_rows, std::span<const std::int32_t> expert_ids,
                      std::span<const float> weights) override;
  void routed(std::int64_t moe_layer, std::span<const std::int32_t> counts,
              std::span<const std::int32_t> activated) override;

  // [num_moe_layers, num_experts] rows since the last call. Ids that are no expert (padding) do not count.
  std::vector<std::int64_t> take();

 private:
  std::int64_t num_experts_;
  StepObserver* next_ = nullptr;
  std::vector<std::int64_t> loads_;
};

// loads [num_moe_layers, num_experts] of all ranks -> a placement of the shape that the job runs with. Must give the
// same answer on all ranks.
using PlacementMaker = std::function<Placement(std::span<const std::int64_t>)>;

class Rebalancer {
 public:
  // decoder and transport must outlive it; the decoder's experts are movable. every_steps >= 1.
  Rebalancer(std::int64_t every_steps, PlacementMaker make, WeightSource source, Decoder& decoder,
             Transport& transport);

  // To be shown the forward passes, on every rank.
  LoadCounter& loads() { return loads_; }

  // Whether the placement is to change before step `step`.
  bool is_due(std::int64_t step) const { return step > 0 && step % every_steps_ == 0; }

  // Collective. Sums the loads over ranks, makes a placement and switches to it; a placement that changes no slot moves
  // nothing. The result is the same on all ranks, but for the time it began, which is left to the caller. Throws
  // AgreedError(internal) if ranks have made different placements, and what Decoder::switch_placement() throws.
  RebalanceMetrics run(std::int64_t step);

 private:
  std::int64_t every_steps_;
  PlacementMaker make_;
  WeightSource source_;
  Decoder* decoder_;
  Transport* transport_;
  LoadCounter loads_;
};

}  // namespace metro
