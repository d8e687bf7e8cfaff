// Decode of MoE layers that the host does not follow: the device routes, lists its own work, and runs it. Between two
// exchanges everything is a fixed row of kernels, so that it can be recorded as a graph (step_graphs.hpp). All ranks
// bring the same number of rows, a power of two; what a rank does not have is padding, which nobody serves or counts.
//
// It does what DecodeDispatch and ExpertService do with lists of the host, with the same bits; those remain for what
// the device cannot do: other policies, ways to exchange, and steps with more rows than one round has room for.
#pragma once

#include "decoder/expert_service.hpp"
#include "decoder/expert_store.hpp"
#include "decoder/gate.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/routing_settings.hpp"
#include "decoder/row_batch.hpp"
#include "decoder/step_observer.hpp"
#include "kernels/buffer.hpp"
#include "kernels/decode_lists.hpp"
#include "kernels/listed_experts.hpp"
#include "kernels/mirror.hpp"
#include "kernels/routing.hpp"
#include "model/model_spec.hpp"
#include "placement/placement.hpp"
#include "transport/device_exchange.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

class ListedDecode {
 public:
  struct Reach {
    std::int64_t num_rows = 0;  // of a rank, a power of two; 0: none
    std::string why_not = {};   // if none
  };
  // The steps that it serves with these limits, those of up to so many rows of each rank; the same on all ranks.
  static Reach most_rows(const ModelSpec& spec, const Placement& placement, const RoutingSettings& routing,
                         const DecoderLimits& limits);

  // most_rows > 0: as above. What comes by reference must outlive it, but for placement, routing and limits.
  ListedDecode(const ModelSpec& spec, const Placement& placement, const RoutingSettings& routing, ExpertStore& store,
               ExpertService& service, Gate& gate, DeviceExchange& exchange, PhaseClock& clock,
               const DecoderLimits& limits, std::int64_t most_rows);

  // Whether a step is one for it; the same on all ranks.
  bool serves(const RowBatch& batch) const;

  // For each step, all ranks alike: begin_step; for every MoE layer choose, gather, serve, give_back, combine;
  // end_step.
  void begin_step(const RowBatch& batch);
  std::int64_t padded_rows() const { return padded_rows_; }

  // Kernels. The gate's choice for own rows, normed [padded_rows, H], by weights [E, H]; rows with positions[row] < 0
  // are padding.
  void choose(std::int64_t moe_layer, const float* normed, const std::int32_t* positions, const RouterWeights& router);
  // Collective. All rows and their experts to all ranks.
  void gather();
  // Kernels. Routes all rows and runs those of this rank's experts.
  void serve(std::int64_t moe_layer);
  // Collective. Results to the owners of the rows. Waits for the counts of the messages, unless they are fixed.
  void give_back();
  // Kernels. residual [padded_rows, H] += the weighted sums.
  void combine(std::int64_t moe_layer, float* residual);

  // Waits. Throws Error(internal) if ranks disagreed about the routing of a layer, then tells the
  // observer, which may be null, what every layer did.
  void end_step(const RowBatch& batch, StepObserver* observer);

  // But for the tables of the placement: a few kilobytes per layer.
  std::int64_t num_bytes() const;
  static std::int64_t planned_bytes(const ModelSpec& spec, const Placement& placement, std::int64_t most_rows);

 private:
  void make_tables(const Placement& placement);
  bool has_fixed_messages() const { return capacity_ > 0; }
  ResultMessages messages() const;
  std::int64_t own_assignments() const { return padded_rows_ * shape_.top_k; }
  const std::int32_t* row_begin() const;
  void require_no_mismatch() const;

  const ModelSpec* spec_;
  ExpertStore* store_;
  ExpertService* service_;
  Gate* gate_;
  DeviceExchange* exchange_;
  PhaseClock* clock_;
  RecordShape shape_;
  std::int64_t most_rows_;
  std::int64_t max_rows_;
  bool wants_fixed_messages_;
  std::int64_t num_layers_;
  std::int64_t padded_rows_ = 0;
  std::int64_t capacity_ = 0;  // of a message, in results; 0: as many as there are
  RoutingStep router_;
  std::vector<RoutingTables> tables_;       // [num_layers]
  std::vector<ExpertWeightTable> weights_;  // [num_layers]
  Mirror<std::int32_t> row_begins_;         // [sizes of steps, num_ranks + 1]
  Mirror<std::int32_t> expert_ids_;         // [num_layers, most_rows, top_k] of own rows
  Mirror<float> expert_weights_;            // likewise
  Mirror<std::int32_t> tallies_;            // [num_layers, num_experts + num_ranks] rows per expert, activated per rank
  Mirror<std::int32_t> counts_;             // [2, num_ranks + 1] sent_begin and returned_begin of a layer
  Mirror<HeaderMismatch> mismatch_;         // [1]
  Buffer<float> records_;                   // [most_rows, H + top_k]
  Buffer<float> gathered_;                  // [num_ranks * most_rows, H + top_k]
  Buffer<std::int32_t> ids_of_all_;         // [num_ranks * most_rows, top_k]
  std::vector<std::int64_t> send_bytes_, recv_bytes_;  // [num_ranks]
};

}  // namespace metro
