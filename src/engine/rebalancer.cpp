#include "engine/rebalancer.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "placement/moves.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace metro {

namespace {

// Of two placements, the mean over MoE layers.
void set_balance(const Placement& now, const Placement& next, std::span<const std::int64_t> loads,
                 RebalanceMetrics& metrics) {
  for (std::int64_t layer = 0; layer < now.num_layers; ++layer) {
    const auto loads_of_layer = loads.subspan(at(layer * now.num_experts), at(now.num_experts));
    metrics.balance_before += balancedness(now, layer, loads_of_layer) / static_cast<double>(now.num_layers);
    metrics.balance_after += balancedness(next, layer, loads_of_layer) / static_cast<double>(now.num_layers);
  }
}

// Weights that go to the wrong rank would be found by nobody later, so this comes before anything moves.
void require_same_placement(const Placement& placement, Transport& transport) {
  const Digest own = placement.digest();
  std::vector<Digest> digests(at(transport.size()));
  const std::vector<std::int64_t> bytes(digests.size(), static_cast<std::int64_t>(sizeof(Digest)));
  transport.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(digests)), bytes);
  for (std::size_t rank = 1; rank < digests.size(); ++rank) {
    if (digests[rank] != digests[0]) {
      throw AgreedError(ExitCode::internal,
                        fmt::format("ranks 0 and {} have made different placements: digest {} and {}", rank,
                                    to_hex(digests[0]), to_hex(digests[rank])));
    }
  }
}

}  // namespace

LoadCounter::LoadCounter(std::int64_t num_moe_layers, std::int64_t num_experts)
    : num_experts_(num_experts), loads_(at(num_moe_layers * num_experts), 0) {}

void LoadCounter::router_choices(std::int64_t moe_layer, std::int64_t num_rows,
                                 std::span<const std::int32_t> expert_ids, std::span<const float> weights) {
  for (const std::int32_t expert : expert_ids) {
    if (expert >= 0 && expert < num_experts_) {
      ++loads_[at(moe_layer * num_experts_ + expert)];
    }
  }
  if (next_ != nullptr) {
    next_->router_choices(moe_layer, num_rows, expert_ids, weights);
  }
}

void LoadCounter::routed(std::int64_t moe_layer, std::span<const std::int32_t> counts,
                         std::span<const std::int32_t> activated) {
  if (next_ != nullptr) {
    next_->routed(moe_layer, counts, activated);
  }
}

std::vector<std::int64_t> LoadCounter::take() {
  std::vector<std::int64_t> empty(loads_.size(), 0);
  return std::exchange(loads_, std::move(empty));
}

Rebalancer::Rebalancer(std::int64_t every_steps, PlacementMaker make, WeightSource source, Decoder& decoder,
                       Transport& transport)
    : every_steps_(every_steps),
      make_(std::move(make)),
      source_(source),
      decoder_(&decoder),
      transport_(&transport),
      loads_(decoder.placement().num_layers, decoder.placement().num_experts) {
  METRO_REQUIRE(every_steps >= 1, fmt::format("rebalancing every {} steps", every_steps));
}

RebalanceMetrics Rebalancer::run(std::int64_t step) {
  const Clock::time_point begin = Clock::now();
  const std::int64_t sent_before = transport_->bytes_sent();
  const std::int64_t read_before = decoder_->bytes_read();
  transport_->set_phase("rebalancing");
  std::vector<std::int64_t> loads = loads_.take();
  transport_->all_reduce_sum(loads);
  const Placement now = decoder_->placement();
  const Placement next = keep_slots(now, make_(loads));
  require_same_placement(next, *transport_);

  RebalanceMetrics metrics;
  metrics.step = step;
  metrics.slots_moved = num_slots_changed(now, next);
  set_balance(now, next, loads, metrics);
  metrics.slot_to_expert = next.slot_to_expert;
  if (metrics.slots_moved > 0) {
    metrics.experts_fetched = decoder_->switch_placement(next, source_);
  }

  transport_->set_phase("rebalancing");
  std::array<std::int64_t, 3> sums{metrics.experts_fetched, transport_->bytes_sent() - sent_before,
                                   decoder_->bytes_read() - read_before};
  transport_->all_reduce_sum(sums);
  metrics.experts_fetched = sums[0];
  metrics.bytes_sent = sums[1];
  metrics.bytes_read = sums[2];
  metrics.seconds = seconds_between(begin, Clock::now());
  return metrics;
}

}  // namespace metro
