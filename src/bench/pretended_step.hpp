// Steps of one rank of a job that is pretended: scheduler, plan, decoder and step record are those of a real run, only
// the model is narrow and random. The experts that the rows of other ranks chose are drawn; results that other ranks
// would send are zero.
#pragma once

#include "bench/model_shapes.hpp"
#include "decoder/decoder.hpp"
#include "requests/scheduler.hpp"
#include "routing/policy.hpp"
#include "transport/device_exchange.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace metro {

struct PretendedStepOptions {
  const ModelShape* shape = nullptr;  // experts and top-k; for the number of rounds also the widths
  std::int64_t num_ranks = 1, rank = 0;
  std::int64_t ranks_per_node = 8;
  std::int64_t batch = 1;           // sequences of each rank
  std::int64_t slots_per_rank = 1;  // of a trivial placement
  RoutingPolicy policy = RoutingPolicy::exact;
  double skew = 0.7;               // of the experts drawn, see SyntheticBatches
  std::int64_t num_generated = 1;  // decode steps that there are to be
};

// Microseconds of this rank; of the layers without what is made up.
struct PretendedTimes {
  double plan = 0.0;           // what every rank computes in this step
  double batch = 0.0;          // from the plan to the rows of this rank
  double layer_routing = 0.0;  // of a layer: routing, packing and unpacking messages
  double record = 0.0;         // packing the step record, and those of all ranks from bytes to tokens
  double apply = 0.0;
};

class PretendedStep {
 public:
  static constexpr std::int64_t prompt_tokens = 16;
  static constexpr std::int64_t num_layers = 2;

  explicit PretendedStep(const PretendedStepOptions& options);
  ~PretendedStep();

  // Whole steps: one that computes all prompts, then, num_generated - 1 times, one that decodes.
  PretendedTimes prefill() { return run_step(); }
  PretendedTimes decode() { return run_step(); }

  // Between the steps. In bytes.
  std::int64_t scheduler_bytes() const { return scheduler_->num_bytes(); }
  std::int64_t plan_bytes() const { return plan_bytes_; }      // of the last step
  std::int64_t record_bytes() const { return record_bytes_; }  // likewise: messages of all ranks, and their tokens
  std::int64_t lambda() const { return lambda_; }              // likewise: the largest of its layers
  Digest digest() const { return scheduler_->digest(); }

 private:
  PretendedTimes run_step();
  void fill_ids(std::int64_t from, std::span<std::byte> message) const;

  PretendedStepOptions options_;
  std::vector<std::byte> ids_;  // [rows of all ranks, top_k] as they travel
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<DeviceExchange> exchange_;
  std::unique_ptr<WeightReader> weights_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Scheduler> scheduler_;
  std::int64_t step_ = 0;
  std::int64_t plan_bytes_ = 0, record_bytes_ = 0, lambda_ = 0;
};

// `num_requests` requests of that many tokens, as the steps above use them.
std::vector<Request> pretended_requests(std::int64_t num_requests, std::int64_t num_generated);

}  // namespace metro
