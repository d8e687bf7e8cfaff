#include "decoder/expert_mover.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/weight_loader.hpp"
#include "kernels/cpu_settings.hpp"
#include "kernels/queue.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace metro {

namespace {

constexpr std::int64_t least_range = 64;  // bytes of an expert in a round, a cache line
constexpr int num_measurements = 3;

std::int64_t most_places(const Placement& placement) {
  return std::min(placement.slots_per_rank, placement.num_experts);
}

// Bytes of the send buffer, and of the receive buffer.
std::int64_t message_bytes(const WeightReader& checkpoint, const Placement& placement, std::int64_t exchange_bytes) {
  std::int64_t largest_expert = 0;
  for (const std::int64_t layer : moe_layers_of(checkpoint.spec())) {
    largest_expert = std::max(largest_expert, packed_expert_bytes(checkpoint, layer));
  }
  // A rank receives at most its places, and sends at most what all others receive.
  const std::int64_t most_moves = most_places(placement) * placement.num_ranks;
  return std::max(std::min(exchange_bytes / 2, most_moves * largest_expert), most_moves * least_range);
}

// The most experts that one rank sends or receives.
std::int64_t busiest(std::span<const ExpertMove> moves, std::int64_t num_ranks) {
  std::vector<std::int64_t> sends(at(num_ranks), 0), receives(at(num_ranks), 0);
  std::int64_t most = 0;
  for (const ExpertMove& move : moves) {
    most = std::max({most, ++sends[at(move.from_rank)], ++receives[at(move.to_rank)]});
  }
  return most;
}

// Best time of a few repetitions of `work` on the slowest rank.
template <class F>
std::int64_t best_time(Transport& transport, F&& work) {
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < num_measurements; ++i) {
    transport.barrier();
    const Clock::time_point begin = Clock::now();
    work();
    wait_for_kernels();
    std::int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    transport.all_reduce_max({&ns, 1});
    best = std::min(best, ns);
  }
  return best;
}

}  // namespace

ExpertMover::ExpertMover(const WeightReader& checkpoint, ResidentExpertStore& store, DeviceExchange& exchange,
                         const Placement& placement, std::int64_t exchange_bytes)
    : checkpoint_(&checkpoint),
      store_(&store),
      exchange_(&exchange),
      transport_(&exchange.transport()),
      model_layers_(moe_layers_of(checkpoint.spec())),
      send_("experts to send", message_bytes(checkpoint, placement, exchange_bytes)),
      recv_("experts received", message_bytes(checkpoint, placement, exchange_bytes)),
      num_sends_(at(exchange.size())),
      num_receives_(at(exchange.size())),
      send_bytes_(at(exchange.size())),
      recv_bytes_(at(exchange.size())) {}

std::int64_t ExpertMover::planned_bytes(const WeightReader& checkpoint, const Placement& placement,
                                        std::int64_t exchange_bytes) {
  return 2 * message_bytes(checkpoint, placement, exchange_bytes);
}

std::int64_t ExpertMover::move(const Placement& now, const Placement& next, WeightSource source) {
  const std::int64_t rank = transport_->rank();
  std::int64_t num_fetched = 0;
  transport_->set_phase("moving experts");
  if (source == WeightSource::checkpoint) {
    agree(*transport_, [&] {
      std::vector<WeightUnit> units;
      for (std::int64_t moe_layer = 0; moe_layer < next.num_layers; ++moe_layer) {
        for (const std::int32_t expert : store_->host(moe_layer, hosted_experts(next, moe_layer, rank))) {
          add_expert_units(*checkpoint_, model_layers_[at(moe_layer)], expert, store_->packed(moe_layer, expert),
                           units);
          ++num_fetched;
        }
      }
      load_units(*checkpoint_, std::move(units), num_kernel_threads());
    });
    return num_fetched;
  }
  for (std::int64_t moe_layer = 0; moe_layer < next.num_layers; ++moe_layer) {
    const std::vector<ExpertMove> moves = plan_moves(now, next, moe_layer);
    exchange_layer(next, moe_layer, moves);
    num_fetched += std::count_if(moves.begin(), moves.end(), [&](const ExpertMove& m) { return m.to_rank == rank; });
  }
  return num_fetched;
}

void ExpertMover::exchange_layer(const Placement& next, std::int64_t moe_layer, std::span<const ExpertMove> moves) {
  const auto rank = static_cast<std::int32_t>(transport_->rank());
  std::fill(num_sends_.begin(), num_sends_.end(), 0);
  std::fill(num_receives_.begin(), num_receives_.end(), 0);
  // Both sides of a pair of ranks take its experts in ascending order.
  std::vector<std::span<std::byte>> sends;
  std::vector<ExpertMove> arriving;
  for (const ExpertMove& move : moves) {
    if (move.from_rank == rank) {
      sends.push_back(store_->packed(moe_layer, move.expert));
      ++num_sends_[at(move.to_rank)];
    } else if (move.to_rank == rank) {
      arriving.push_back(move);
      ++num_receives_[at(move.from_rank)];
    }
  }
  std::stable_sort(arriving.begin(), arriving.end(),
                   [](const ExpertMove& a, const ExpertMove& b) { return a.from_rank < b.from_rank; });
  // Only names change here; the bytes of experts that leave stay until a round overwrites them.
  store_->host(moe_layer, hosted_experts(next, moe_layer, rank));
  if (moves.empty()) {
    return;
  }
  std::vector<std::span<std::byte>> receives;
  for (const ExpertMove& move : arriving) {
    receives.push_back(store_->packed(moe_layer, move.expert));
  }
  const std::int64_t expert_bytes = packed_expert_bytes(*checkpoint_, model_layers_[at(moe_layer)]);
  const std::int64_t range = send_.size() / busiest(moves, transport_->size()) / least_range * least_range;
  METRO_REQUIRE(range > 0, fmt::format("{} moves in MoE layer {}", moves.size(), moe_layer));
  for (std::int64_t begin = 0; begin < expert_bytes; begin += range) {
    exchange_range(sends, receives, begin, std::min(range, expert_bytes - begin));
  }
}

void ExpertMover::exchange_range(std::span<const std::span<std::byte>> sends,
                                 std::span<const std::span<std::byte>> receives, std::int64_t begin,
                                 std::int64_t length) {
  std::byte* out = send_.data();
  for (const std::span<std::byte> expert : sends) {
    queue_copy(out, expert.data() + begin, length);
    out += length;
  }
  for (std::size_t rank = 0; rank < send_bytes_.size(); ++rank) {
    send_bytes_[rank] = num_sends_[rank] * length;
    recv_bytes_[rank] = num_receives_[rank] * length;
  }
  exchange_->all_to_all(std::span(send_.data(), sends.size() * at(length)), send_bytes_,
                        std::span(recv_.data(), receives.size() * at(length)), recv_bytes_);
  const std::byte* in = recv_.data();
  for (const std::span<std::byte> expert : receives) {
    queue_copy(expert.data() + begin, in, length);
    in += length;
  }
}

SourceTimes ExpertMover::measure() {
  SourceTimes times;
  if (model_layers_.empty() || transport_->size() == 1) {
    return times;
  }
  const Buffer<std::byte> expert("an expert to measure with", packed_expert_bytes(*checkpoint_, model_layers_[0]));
  transport_->set_phase("measuring how fast experts move");
  const std::span<std::byte> bytes(expert.data(), at(expert.size()));
  times.checkpoint_ns = measure_checkpoint(bytes);
  times.peers_ns = measure_peers(bytes);
  return times;
}

std::int64_t ExpertMover::measure_checkpoint(std::span<std::byte> expert) {
  // Each rank another expert, as when they move.
  const std::int64_t expert_idx = transport_->rank() % checkpoint_->spec().moe.num_experts;
  const auto read = [&] {
    std::vector<WeightUnit> units;
    add_expert_units(*checkpoint_, model_layers_[0], expert_idx, expert, units);
    load_units(*checkpoint_, std::move(units), num_kernel_threads());
  };
  agree(*transport_, read);
  return best_time(*transport_, read);
}

std::int64_t ExpertMover::measure_peers(std::span<const std::byte> expert) {
  // Rank r to rank r + 1.
  const std::int64_t size = transport_->size();
  const auto expert_bytes = std::ssize(expert);
  return best_time(*transport_, [&] {
    for (std::int64_t begin = 0; begin < expert_bytes; begin += send_.size()) {
      const std::int64_t length = std::min(send_.size(), expert_bytes - begin);
      std::fill(send_bytes_.begin(), send_bytes_.end(), 0);
      std::fill(recv_bytes_.begin(), recv_bytes_.end(), 0);
      send_bytes_[at((transport_->rank() + 1) % size)] = length;
      recv_bytes_[at((transport_->rank() + size - 1) % size)] = length;
      queue_copy(send_.data(), expert.data() + begin, length);
      exchange_->all_to_all(std::span(send_.data(), at(length)), send_bytes_, std::span(recv_.data(), at(length)),
                            recv_bytes_);
    }
  });
}

}  // namespace metro
