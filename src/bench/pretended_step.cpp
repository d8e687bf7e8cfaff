#include "bench/pretended_step.hpp"

#include "base/error.hpp"
#include "base/held_bytes.hpp"
#include "base/integers.hpp"
#include "bench/random_weights.hpp"
#include "bench/synthetic_batches.hpp"
#include "decoder/ids_exchange.hpp"
#include "decoder/message_header.hpp"
#include "engine/step_batch.hpp"
#include "engine/step_record.hpp"
#include "placement/placement.hpp"
#include "transport/pretend_transport.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace metro {

namespace {

constexpr std::int64_t hidden = 64;
constexpr std::int64_t block_tokens = 16;
constexpr std::int64_t vocab = 64;

// The experts of `shape` in a model that is as narrow as it can be.
ModelSpec narrow_spec(const ModelShape& shape) {
  ModelShape narrow = with_routed_experts_only(shape);
  narrow.hidden = hidden;
  narrow.expert_width = 32;
  narrow.num_heads = 2;
  narrow.num_kv_heads = 1;
  narrow.head_dim = 32;
  return model_spec_of(narrow, PretendedStep::num_layers, vocab);
}

DecoderLimits limits_of(const PretendedStepOptions& options) {
  DecoderLimits limits;
  limits.max_decode_rows = options.batch;
  limits.max_rows = options.batch * PretendedStep::prompt_tokens;
  limits.max_sampled_rows = options.batch;
  limits.max_context = PretendedStep::prompt_tokens + options.num_generated;
  limits.block_tokens = block_tokens;
  limits.kv_blocks = options.batch * ceil_div(limits.max_context, block_tokens);
  // As many rows in a round as the default of exchange.memory gives the whole width.
  const ModelShape& shape = *options.shape;
  const std::int64_t round_rows = (std::int64_t{256} << 20) / ((4 * shape.hidden + shape.expert_width) * 4);
  limits.exchange_bytes = std::max<std::int64_t>(1, round_rows) * (4 * hidden + 32) * 4;
  limits.exchange.mode = ExchangeMode::ids_then_alltoall;
  return limits;
}

SchedulerLimits scheduler_limits_of(const PretendedStepOptions& options, const DecoderLimits& decoder) {
  SchedulerLimits limits;
  limits.num_ranks = options.num_ranks;
  limits.max_sequences_per_rank = options.batch;
  limits.prefill_chunk = decoder.max_rows;
  limits.kv_blocks_per_rank = decoder.kv_blocks;
  limits.block_tokens = block_tokens;
  limits.keeps_tokens_of = options.rank == 0 ? SchedulerLimits::all_ranks : options.rank;
  return limits;
}

// In two bytes each, as IdsExchange sends them.
std::vector<std::byte> packed_ids(const PretendedStepOptions& options) {
  const SyntheticBatches drawn{options.shape->num_experts, options.num_ranks * options.batch, options.shape->top_k,
                               options.skew, 1};
  METRO_REQUIRE(IdsExchange::id_bytes(drawn.num_experts) == 2, "more experts than two bytes can tell apart");
  std::vector<std::byte> bytes;
  for (const std::int32_t expert : drawn.batch(0)) {
    const auto id = static_cast<std::uint16_t>(expert);
    const auto raw = std::as_bytes(std::span(&id, 1));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  }
  return bytes;
}

// What stands before rows: the digest that all ranks share, and how many rows the size says. Rows are zero.
void fill_rows(std::span<const std::byte> own, std::span<std::byte> message) {
  if (own.size() == message.size()) {
    std::ranges::copy(own, message.begin());
    return;
  }
  METRO_REQUIRE(own.size() >= sizeof(MessageHeader) && message.size() >= sizeof(MessageHeader), "a message too short");
  MessageHeader header;
  std::memcpy(&header, own.data(), sizeof header);
  const std::span<std::byte> rows = message.subspan(sizeof header);
  header.count = static_cast<std::int64_t>(rows.size() / (hidden * sizeof(float)));
  write_header(header, message.data());
  std::ranges::fill(rows, std::byte{0});
}

double microseconds(Clock::time_point begin, Clock::time_point end) {
  return 1e6 * seconds_between(begin, end);
}

class LargestLambda final : public StepObserver {
 public:
  void routed(std::int64_t /*moe_layer*/, std::span<const std::int32_t> /*counts*/,
              std::span<const std::int32_t> activated) override {
    lambda = std::max<std::int64_t>(lambda, *std::ranges::max_element(activated));
  }
  std::int64_t lambda = 0;
};

std::int64_t bytes_of(const StepPlan& plan) {
  std::int64_t bytes = held_bytes(plan.rows_of_rank);
  for (const auto& rows : plan.rows_of_rank) {
    bytes += held_bytes(rows);
  }
  return bytes;
}

std::int64_t bytes_of(const StepRecord& record) {
  std::int64_t bytes = held_bytes(record.sampled_of_rank) + held_bytes(record.measured_of_rank);
  for (const auto& sampled : record.sampled_of_rank) {
    bytes += held_bytes(sampled);
  }
  return bytes;
}

}  // namespace

std::vector<Request> pretended_requests(std::int64_t num_requests, std::int64_t num_generated) {
  std::vector<Request> requests(at(num_requests));
  for (std::int64_t id = 0; id < num_requests; ++id) {
    Request& request = requests[at(id)];
    request.id = id;
    request.max_tokens = static_cast<std::int32_t>(num_generated);
    for (std::int64_t position = 0; position < PretendedStep::prompt_tokens; ++position) {
      request.prompt.push_back(static_cast<std::int32_t>((id + 7 * position) % vocab));
    }
  }
  return requests;
}

PretendedStep::PretendedStep(const PretendedStepOptions& options) : options_(options), ids_(packed_ids(options)) {
  PretendedJob job{.size = options.num_ranks, .rank = options.rank, .ranks_per_node = options.ranks_per_node};
  job.gathered = [this](const char* phase, std::int64_t from, std::span<const std::byte> own,
                        std::span<std::byte> message) {
    if (std::string_view(phase) == "dispatch of ids") {
      fill_ids(from, message);
      return;
    }
    METRO_REQUIRE(own.size() == message.size(), phase);
    std::ranges::copy(own, message.begin());
  };
  job.exchanged = [](const char* /*phase*/, std::int64_t /*from*/, std::span<const std::byte> own,
                     std::span<std::byte> message) { fill_rows(own, message); };
  // Tables of the model, which no routing depends on.
  job.broadcast = [](const char* /*phase*/, std::int64_t /*root*/, std::span<std::byte> data) {
    std::ranges::fill(data, std::byte{0});
  };
  transport_ = make_pretend_transport(std::move(job));
  exchange_ = make_device_exchange(*transport_);

  const ModelSpec spec = narrow_spec(*options.shape);
  const DecoderLimits limits = limits_of(options);
  weights_ = std::make_unique<RandomWeights>(spec, StoredType::bf16);
  RoutingSettings routing;
  routing.decode = options.policy;
  routing.rank_to_node = nodes_of_size(options.num_ranks, options.ranks_per_node);
  const Placement placement =
      place_trivial(num_layers, spec.moe.num_experts, options.num_ranks, options.slots_per_rank);
  decoder_ = std::make_unique<Decoder>(*weights_,
                                       ReplicatedTensors(*weights_, limits.max_context, Sharing::per_rank, *transport_),
                                       placement, routing, *exchange_, limits);
  scheduler_ = std::make_unique<Scheduler>(scheduler_limits_of(options, limits));
  scheduler_->add(pretended_requests(options.num_ranks * options.batch, options.num_generated));
}

PretendedStep::~PretendedStep() = default;

// All ranks have the same number of rows.
void PretendedStep::fill_ids(std::int64_t from, std::span<std::byte> message) const {
  METRO_REQUIRE(message.size() * at(options_.num_ranks) == ids_.size(), "rows of another rank");
  std::memcpy(message.data(), ids_.data() + at(from) * message.size(), message.size());
}

PretendedTimes PretendedStep::run_step() {
  PretendedTimes times;
  LargestLambda observer;
  const Clock::time_point begin = Clock::now();
  const StepPlan plan = scheduler_->plan_step();
  const Clock::time_point planned = Clock::now();
  const RowBatch batch = batch_of(plan, options_.rank, step_++);
  const Clock::time_point made = Clock::now();
  decoder_->clock().take();
  decoder_->clock().start();
  decoder_->forward(batch, &observer);
  const LapSeconds laps = decoder_->clock().take();
  RankRecord own;
  own.sampled.resize(batch.sampled_rows.size());
  const Clock::time_point sampled = Clock::now();
  StepRecord record = exchange_step_record(plan, own, {scheduler_->digest(), 0}, *transport_);
  const Clock::time_point recorded = Clock::now();
  plan_bytes_ = bytes_of(plan);
  constexpr auto token_bytes = static_cast<std::int64_t>(2 * sizeof(std::int32_t) + sizeof(float));
  constexpr auto head_bytes = static_cast<std::int64_t>(sizeof(AgreedState) + sizeof(RankStep) + sizeof(bool));
  record_bytes_ = bytes_of(record) + options_.num_ranks * (head_bytes + options_.batch * token_bytes);
  const Clock::time_point counted = Clock::now();
  scheduler_->apply(std::move(record.sampled_of_rank));
  times.apply = microseconds(counted, Clock::now());
  times.plan = microseconds(begin, planned);
  times.batch = microseconds(planned, made);
  times.layer_routing = 1e6 * laps[static_cast<std::size_t>(Lap::routing)] / static_cast<double>(num_layers);
  times.record = microseconds(sampled, recorded);
  lambda_ = observer.lambda;
  return times;
}

}  // namespace metro
