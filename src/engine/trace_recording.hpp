// Records which experts the gate chose for every token of a run, as a routing trace (trace.record): what `metro replay`
// and activation-aware placement work from. Collective; it changes no completion.
#pragma once

#include "decoder/step_observer.hpp"
#include "model/model_spec.hpp"
#include "requests/scheduler.hpp"
#include "trace/trace_file.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace metro {

class TraceRecording : public StepObserver {
 public:
  // Rank 0 makes the file `path` (throws as TraceWriter does). `transport` must outlive it.
  TraceRecording(const ModelSpec& spec, const std::string& path, Transport& transport);

  // Whom else to show the next steps; may be null.
  void forward_to(StepObserver* next) { next_ = next; }

  void router_choices(std::int64_t moe_layer, std::int64_t num_rows, std::span<const std::int32_t> expert_ids,
                      std::span<const float> weights) override;
  void routed(std::int64_t moe_layer, std::span<const std::int32_t> counts,
              std::span<const std::int32_t> activated) override;

  // Collective, after the forward pass of each step: the choices of all ranks go to rank 0 and into the file, rows in
  // the order of the plan, without those that a sequence has computed before.
  void record(const StepPlan& plan, std::int64_t step);

  // Rank 0 writes what is left.
  void close();

 private:
  RoutingTrace trace_of(const StepPlan& plan, std::int64_t step, std::span<const std::uint16_t> choices) const;

  TraceModel model_;
  Transport* transport_;
  StepObserver* next_ = nullptr;
  std::optional<TraceWriter> writer_;  // rank 0 only
  std::vector<std::uint16_t> own_;     // [own rows, layers, top_k] of the step
};

}  // namespace metro
