// Times both exchange modes of bench exchange in turn with sending alone, which gives the limit.
#include "base/integers.hpp"
#include "bench/exchange_bench.hpp"
#include "bench/read_speed.hpp"
#include "bench/rows_exchange.hpp"
#include "decoder/exchange_choice.hpp"
#include "decoder/exchange_trial.hpp"
#include "kernels/buffer.hpp"
#include "placement/placement.hpp"
#include "transport/device_exchange.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>

namespace metro {

namespace {

// To each other rank: far above what latency hides.
constexpr std::int64_t bandwidth_message_bytes = std::int64_t{4} << 20;
// Of node memory: more than the rows of usual batches.
constexpr std::int64_t two_levels_bytes = std::int64_t{32} << 20;

// Sends between all pairs of ranks at once.
class SendSpeed {
 public:
  explicit SendSpeed(DeviceExchange& exchange)
      : exchange_(&exchange),
        send_("messages to send", exchange.size() * bandwidth_message_bytes),
        recv_("messages received", exchange.size() * bandwidth_message_bytes),
        bytes_(at(exchange.size()), bandwidth_message_bytes) {
    bytes_[at(exchange.rank())] = 0;
  }

  // Collective. Nanoseconds on this rank.
  std::int64_t run() {
    const std::int64_t total = std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
    exchange_->transport().barrier();
    const double seconds = seconds_of([&] {
      exchange_->all_to_all(std::span(send_.data(), at(total)), bytes_, std::span(recv_.data(), at(total)), bytes_);
    });
    return static_cast<std::int64_t>(1e9 * seconds);
  }

  // From the time of the slowest rank.
  double gb_per_s(std::int64_t ns) const {
    return static_cast<double>((exchange_->size() - 1) * bandwidth_message_bytes) / static_cast<double>(ns);
  }

 private:
  DeviceExchange* exchange_;
  Buffer<std::byte> send_, recv_;
  std::vector<std::int64_t> bytes_;  // [num_ranks], none to oneself
};

std::int64_t of_slowest(Transport& transport, std::int64_t value) {
  transport.all_reduce_max({&value, 1});
  return value;
}

struct Samples {
  std::vector<double> allgather_us, ids_us;
};

ExchangeTiming timing_of(const std::vector<double>& us, std::int64_t bytes) {
  return {bytes, least_of(us), median_of(us)};
}

// By medians.
std::int64_t crossover_of(const std::vector<ExchangeBatch>& batches, std::int64_t levels, std::int64_t num_ranks) {
  std::vector<ExchangeTimes> medians;
  for (const ExchangeBatch& batch : batches) {
    if (batch.levels == levels) {
      medians.push_back({batch.rows_per_rank * num_ranks, static_cast<std::int64_t>(1e3 * batch.allgather.us_median),
                         static_cast<std::int64_t>(1e3 * batch.ids.us_median)});
    }
  }
  return num_ranks == 1 ? unlimited_rows : border_of(medians);
}

}  // namespace

ExchangeResult time_exchanges(const ExchangeBenchOptions& options, Transport& transport) {
  const ExchangeShape shape = exchange_shape_of(options);
  ModelSpec spec;
  spec.hidden_size = shape.hidden;
  spec.moe.num_experts = shape.num_experts;
  spec.moe.top_k = shape.top_k;
  const std::int64_t slots = slots_for_replication(shape.num_experts, transport.size(), options.replication);
  const Placement placement = place_eplb({}, 1, shape.num_experts, 1, 1, transport.size(), slots);
  std::vector<std::int64_t> batch_sizes = options.batch_sizes;
  std::sort(batch_sizes.begin(), batch_sizes.end());
  batch_sizes.erase(std::unique(batch_sizes.begin(), batch_sizes.end()), batch_sizes.end());
  const std::unique_ptr<DeviceExchange> exchange = make_rows_exchange(transport);
  ExchangeTrial trial(spec, placement, RoutingSettings{}, *exchange, batch_sizes.back());
  SendSpeed sending(*exchange);

  // Whether two levels are possible is not known without asking; one is always measured then.
  const bool wants_two = std::ranges::count(options.levels, 2) > 0;
  const bool has_two = wants_two && transport.prepare_two_levels(two_levels_bytes);
  std::vector<std::int64_t> levels;
  for (const std::int64_t one : {1, 2}) {
    if (one == 2 ? has_two : !has_two || std::ranges::count(options.levels, 1) > 0) {
      levels.push_back(one);
    }
  }

  ExchangeResult result;
  std::vector<double> gb_per_s;
  for (const std::int64_t rows : batch_sizes) {
    for (const std::int64_t one : levels) {
      result.batches.push_back({one, rows, {}, {}});
    }
  }
  std::vector<Samples> samples(result.batches.size());
  // The first repetition touches memory and is dropped.
  for (std::int64_t repetition = 0; repetition <= options.repetitions; ++repetition) {
    for (std::size_t i = 0; i < result.batches.size(); ++i) {
      ExchangeBatch& batch = result.batches[i];
      transport.set_levels(batch.levels == 2 ? Levels::two : Levels::one);
      trial.set_rows(batch.rows_per_rank, static_cast<std::uint64_t>(repetition));
      const std::int64_t allgather_ns = of_slowest(transport, trial.run(ExchangeMode::allgather));
      batch.allgather.bytes_sent_max = of_slowest(transport, trial.bytes_sent());
      const std::int64_t ids_ns = of_slowest(transport, trial.run(ExchangeMode::ids_then_alltoall));
      batch.ids.bytes_sent_max = std::max(batch.ids.bytes_sent_max, of_slowest(transport, trial.bytes_sent()));
      if (repetition > 0) {
        samples[i].allgather_us.push_back(1e-3 * static_cast<double>(allgather_ns));
        samples[i].ids_us.push_back(1e-3 * static_cast<double>(ids_ns));
      }
    }
    transport.set_levels(Levels::one);
    const std::int64_t send_ns = of_slowest(transport, sending.run());
    if (repetition > 0 && transport.size() > 1) {
      gb_per_s.push_back(sending.gb_per_s(send_ns));
    }
  }

  for (std::size_t i = 0; i < result.batches.size(); ++i) {
    ExchangeBatch& batch = result.batches[i];
    batch.allgather = timing_of(samples[i].allgather_us, batch.allgather.bytes_sent_max);
    batch.ids = timing_of(samples[i].ids_us, batch.ids.bytes_sent_max);
  }
  if (!gb_per_s.empty()) {
    result.gb_per_s_max = *std::max_element(gb_per_s.begin(), gb_per_s.end());
    result.gb_per_s_median = median_of(gb_per_s);
  }
  for (const std::int64_t one : levels) {
    result.crossovers.push_back({one, crossover_of(result.batches, one, transport.size())});
  }
  return result;
}

}  // namespace metro
