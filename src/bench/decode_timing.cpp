// Times the settings of bench decode, each step in turn with reading alone.
#include "base/integers.hpp"
#include "bench/decode_bench.hpp"
#include "bench/model_shapes.hpp"
#include "bench/random_weights.hpp"
#include "bench/read_speed.hpp"
#include "bench/rows_exchange.hpp"
#include "checkpoint/layout.hpp"
#include "decoder/decoder.hpp"
#include "decoder/expert_store.hpp"
#include "kernels/arithmetic_speed.hpp"
#include "kernels/cpu_settings.hpp"
#include "placement/placement.hpp"
#include "transport/device_exchange.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

namespace metro {

namespace {

constexpr std::int64_t block_tokens = 16;

// Adds up what the ranks activate in a step.
class ActivationCounter : public StepObserver {
 public:
  void routed(std::int64_t /*moe_layer*/, std::span<const std::int32_t> /*counts*/,
              std::span<const std::int32_t> activated) override {
    lambda_sum_ += *std::max_element(activated.begin(), activated.end());
    activated_sum_ += std::accumulate(activated.begin(), activated.end(), std::int64_t{0});
  }
  std::int64_t lambda_sum() const { return lambda_sum_; }
  std::int64_t activated_sum() const { return activated_sum_; }

 private:
  std::int64_t lambda_sum_ = 0, activated_sum_ = 0;
};

// First row of a rank when rows are dealt out evenly.
std::int64_t first_row_of(std::int64_t num_rows, std::int64_t rank, std::int64_t num_ranks) {
  return num_rows * rank / num_ranks;
}

class DecodeBench {
 public:
  DecodeBench(const DecodeBenchOptions& options, Transport& transport)
      : options_(options),
        transport_(&transport),
        exchange_(make_rows_exchange(transport)),
        memory_("memory to read", (options.flush_mib << 20) / 8),
        reading_({memory_.data(), at(memory_.size())}) {
    const ModelSpec spec =
        model_spec_of(model_shape(options.model, "bench decode: --model"), options.num_layers, options.vocab);
    const std::int64_t most_sequences = *std::max_element(options.batch_sizes.begin(), options.batch_sizes.end());
    limits_.max_decode_rows = ceil_div(most_sequences, transport.size());
    limits_.max_rows = std::max(limits_.max_decode_rows, options.prefill_tokens);
    limits_.max_sampled_rows = limits_.max_rows;
    limits_.max_context = std::max(options.context + 1, options.prefill_tokens);
    limits_.block_tokens = block_tokens;
    limits_.kv_blocks = std::max(limits_.max_decode_rows * blocks_of(options.context + 1),
                                 blocks_of(std::max<std::int64_t>(options.prefill_tokens, 1)));
    limits_.exchange_bytes = std::int64_t{1} << 30;
    for (const std::string& weights : options.weights) {
      sources_.push_back(
          std::make_unique<RandomWeights>(spec, weights == "int8" ? StoredType::int8 : StoredType::bf16));
      for (const double replication : options.replications) {
        add_decoder(*sources_.back(), replication);
      }
    }
    policies_.resize(decoders_.size());
    make_results();
  }

  std::vector<DecodeResult> run() {
    for (std::int64_t repetition = 0; repetition < options_.repetitions; ++repetition) {
      for (DecodeResult& result : results_) {
        result.samples.push_back(sample(result.setting, static_cast<std::uint64_t>(repetition)));
      }
    }
    return std::move(results_);
  }

 private:
  static std::int64_t blocks_of(std::int64_t num_tokens) { return ceil_div(num_tokens, block_tokens); }

  void add_decoder(RandomWeights& weights, double replication) {
    const ModelSpec& spec = weights.spec();
    const std::int64_t slots = slots_for_replication(spec.moe.num_experts, transport_->size(), replication);
    // Not EPLB: without loads it may put both replicas of an expert on one rank.
    const Placement placement = place_trivial(spec.num_moe_layers(), spec.moe.num_experts, transport_->size(), slots);
    decoders_.push_back(std::make_unique<Decoder>(
        weights, ReplicatedTensors(weights, limits_.max_context, Sharing::per_rank, *transport_), placement,
        RoutingSettings{}, *exchange_, limits_));
  }

  // For each decoder, in their order.
  void make_results() {
    for (const std::string& weights : options_.weights) {
      for (const double replication : options_.replications) {
        for (const std::int64_t threads : options_.threads) {
          for (const std::int64_t batch : options_.batch_sizes) {
            for (const std::string& policy : options_.policies) {
              results_.push_back({{false, batch, weights, replication, policy, threads}, {}});
            }
          }
          if (options_.prefill_tokens > 0) {
            const std::int64_t num_rows = options_.prefill_tokens * transport_->size();
            results_.push_back({{true, num_rows, weights, replication, "even", threads}, {}});
          }
        }
      }
    }
  }

  // Rows of this rank: decode has one row for each sequence, at the same position; prefill one sequence from its begin.
  RowBatch batch_of(const DecodeSetting& setting, std::uint64_t repetition) {
    RowBatch batch;
    batch.decode = !setting.prefill;
    batch.step = step_++;
    std::int64_t own_rows = 0;
    for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
      const std::int64_t rows = first_row_of(setting.num_rows, rank + 1, transport_->size()) -
                                first_row_of(setting.num_rows, rank, transport_->size());
      batch.rows_of_rank.push_back(rows);
      own_rows = rank == transport_->rank() ? rows : own_rows;
    }
    const std::int64_t first_row = first_row_of(setting.num_rows, transport_->rank(), transport_->size());
    batch.max_blocks = blocks_of(setting.prefill ? own_rows : options_.context + 1);
    for (std::int64_t row = 0; row < own_rows; ++row) {
      // Tokens depend on row and repetition alone: all settings of one size get the same.
      std::uint64_t bits = (repetition << 32) + static_cast<std::uint64_t>(first_row + row);
      bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
      bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
      batch.token_ids.push_back(static_cast<std::int32_t>((bits >> 33) % static_cast<std::uint64_t>(options_.vocab)));
      batch.positions.push_back(static_cast<std::int32_t>(setting.prefill ? row : options_.context));
      batch.sequences.push_back(static_cast<std::int32_t>(setting.prefill ? 0 : row));
      batch.sampled_rows.push_back(static_cast<std::int32_t>(row));
    }
    const std::int64_t num_sequences = setting.prefill ? 1 : own_rows;
    batch.block_tables.resize(at(num_sequences * batch.max_blocks));
    std::iota(batch.block_tables.begin(), batch.block_tables.end(), 0);
    return batch;
  }

  DecodeSample sample(const DecodeSetting& setting, std::uint64_t repetition) {
    const std::int64_t decoder_idx = decoder_of(setting);
    const WeightReader& weights = *sources_[at(decoder_idx) / options_.replications.size()];
    Decoder& decoder = *decoders_[at(decoder_idx)];
    prepare(decoder_idx, setting);
    const RowBatch batch = batch_of(setting, repetition);
    DecodeSample sample;
    transport_->barrier();
    const std::int64_t flush_bytes = memory_.num_bytes();
    sample.bytes_per_s = static_cast<double>(flush_bytes) / of_slowest(reading_.seconds(0, flush_bytes));
    if (setting.prefill) {
      sample.flops_per_s = flops_per_s();
    }
    ActivationCounter counter;
    transport_->barrier();
    sample.seconds = of_slowest(seconds_of([&] { decoder.forward(batch, &counter); }));
    const auto num_layers = static_cast<double>(options_.num_layers);
    sample.lambda = static_cast<double>(counter.lambda_sum()) / num_layers;
    sample.num_activated = static_cast<double>(counter.activated_sum()) / num_layers;
    const std::int64_t most_rows = *std::max_element(batch.rows_of_rank.begin(), batch.rows_of_rank.end());
    sample.bytes = dense_bytes(weights, most_rows) + counter.lambda_sum() * expert_bytes(weights);
    return sample;
  }

  std::int64_t decoder_of(const DecodeSetting& setting) const {
    const auto index_in = [](const auto& list, const auto& value) {
      return std::find(list.begin(), list.end(), value) - list.begin();
    };
    return index_in(options_.weights, setting.weights) * std::ssize(options_.replications) +
           index_in(options_.replications, setting.replication);
  }

  // Sets policy and threads.
  void prepare(std::int64_t decoder_idx, const DecodeSetting& setting) {
    if (num_kernel_threads() != setting.num_threads || !order_chosen_) {
      set_num_kernel_threads(setting.num_threads);
      transport_->barrier();  // all ranks read at the same time
      reading_.choose_order();
      order_chosen_ = true;
    }
    if (!setting.prefill && policies_[at(decoder_idx)] != setting.policy) {
      policies_[at(decoder_idx)] = setting.policy;
      RoutingSettings routing;
      routing.decode = *routing_policy_named(setting.policy);
      decoders_[at(decoder_idx)]->switch_routing(routing);
    }
  }

  double flops_per_s() {
    constexpr std::int64_t num_steps = 1 << 22;
    std::int64_t flops = 0;
    const double seconds = of_slowest(seconds_of([&flops] { flops = run_multiply_adds(num_steps); }));
    return static_cast<double>(flops) / seconds;
  }

  double of_slowest(double seconds) {
    auto nanoseconds = static_cast<std::int64_t>(seconds * 1e9);
    transport_->all_reduce_max({&nanoseconds, 1});
    return 1e-9 * static_cast<double>(nanoseconds);
  }

  // What a rank with that many rows reads apart from experts: projections, router, head, and the cache of its rows.
  std::int64_t dense_bytes(const WeightReader& weights, std::int64_t num_rows) const {
    if (num_rows == 0) {
      return 0;
    }
    const ModelSpec& spec = weights.spec();
    std::int64_t num_bytes = 0;
    for (const auto& [dataset, info] : weights.tensors()) {
      if (!info.is_expert_tensor && dataset != layout::embed) {
        num_bytes += info.num_bytes();
      }
    }
    const std::int64_t kv_floats = spec.cached_values() * (options_.context + 1);
    return num_bytes + num_rows * spec.num_layers * kv_floats * static_cast<std::int64_t>(sizeof(float));
  }

  // Of the first layer; all are alike.
  static std::int64_t expert_bytes(const WeightReader& weights) { return packed_expert_bytes(weights, 0); }

  const DecodeBenchOptions& options_;
  Transport* transport_;
  std::unique_ptr<DeviceExchange> exchange_;
  DecoderLimits limits_;
  std::vector<std::unique_ptr<RandomWeights>> sources_;  // by weights
  std::vector<std::unique_ptr<Decoder>> decoders_;       // by weights, then replication
  std::vector<std::string> policies_;                    // in use in each of them
  Buffer<std::uint64_t> memory_;
  ReadSpeed reading_;
  bool order_chosen_ = false;
  std::int64_t step_ = 0;
  std::vector<DecodeResult> results_;
};

}  // namespace

double flops_of_tokens(const DecodeBenchOptions& options, std::int64_t num_tokens) {
  const ModelShape& shape = model_shape(options.model, "bench decode: --model");
  const ModelSpec spec = model_spec_of(shape, options.num_layers, options.vocab);
  std::int64_t attention = 0;
  for (const LinearShape& linear : shape.linears) {
    attention += linear.name == "router" || linear.name == "lm_head"
                     ? 0
                     : (linear.name == "k, v" ? 2 : 1) * linear.out * linear.in;
  }
  const std::int64_t experts =
      3 * spec.hidden_size * (spec.moe.intermediate_size * spec.moe.top_k + spec.moe.shared_width);
  const std::int64_t weights = spec.num_layers * (attention + experts + spec.hidden_size * spec.moe.num_experts) +
                               spec.hidden_size * spec.vocab_size;
  return 2.0 * static_cast<double>(weights) * static_cast<double>(num_tokens);
}

std::vector<DecodeResult> time_decode(const DecodeBenchOptions& options, Transport& transport) {
  DecodeBench bench(options, transport);
  return bench.run();
}

}  // namespace metro
