#include "decoder/listed_decode.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernels/queue.hpp"
#include "placement/moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace metro {

namespace {

constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));

std::int64_t power_of_two_from(std::int64_t number) {
  return static_cast<std::int64_t>(std::bit_ceil(at(number)));
}

// The policies that the routing kernel has.
std::optional<StepPolicy> step_policy(RoutingPolicy policy) {
  switch (policy) {
    case RoutingPolicy::metro:
      return StepPolicy::metro;
    case RoutingPolicy::metro_scarce:
      return StepPolicy::metro_scarce;
    case RoutingPolicy::exact:
      return StepPolicy::exact;
    case RoutingPolicy::even:
      return StepPolicy::even;
    default:
      return std::nullopt;
  }
}

StepPolicy policy_of(const RoutingSettings& routing) {
  const auto policy = step_policy(routing.decode);
  METRO_REQUIRE(policy.has_value(), "a policy that the device does not have");
  return *policy;
}

bool crosses_nodes(const RoutingSettings& routing) {
  const auto& nodes = routing.rank_to_node;
  return std::adjacent_find(nodes.begin(), nodes.end(), std::not_equal_to<>()) != nodes.end();
}

// Own slots of one layer.
std::span<const std::int32_t> slots_of(const Placement& placement, std::int64_t moe_layer, std::int64_t rank) {
  return placement.layer(moe_layer).subspan(at(rank * placement.slots_per_rank), at(placement.slots_per_rank));
}

// How the experts of the ranks' slots look, over all layers and ranks.
struct SlotFacts {
  bool rank_without_expert = false;
  bool expert_twice_on_rank = false;
};

SlotFacts facts_of(const Placement& placement) {
  SlotFacts facts;
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    for (std::int64_t rank = 0; rank < placement.num_ranks; ++rank) {
      const auto slots = slots_of(placement, layer, rank);
      const auto num_filled = std::ssize(slots) - std::ranges::count(slots, Placement::empty_slot);
      const auto num_experts = std::ssize(hosted_experts(placement, layer, rank));
      facts.rank_without_expert |= num_experts == 0;
      facts.expert_twice_on_rank |= num_experts < num_filled;
    }
  }
  return facts;
}

RoutingStep::Sizes router_sizes(const Placement& placement, std::int64_t most_assignments) {
  return {placement.num_experts, placement.num_ranks, placement.slots_per_rank, most_assignments};
}

// Sizes of steps: 1, 2, 4 .. most_rows.
std::int64_t num_sizes(std::int64_t most_rows) {
  return std::countr_zero(at(most_rows)) + 1;
}

}  // namespace

ListedDecode::Reach ListedDecode::most_rows(const ModelSpec& spec, const Placement& placement,
                                            const RoutingSettings& routing, const DecoderLimits& limits) {
  const auto no = [](const char* why) { return Reach{0, why}; };
  if (!step_policy(routing.decode)) {
    return no("routing.decode is a policy of the host only");
  }
  if (routing.decode == RoutingPolicy::exact && routing.prefer_own_node && crosses_nodes(routing)) {
    return no("routing.ties = \"near\" is for the host only");
  }
  if (!limits.exchange.may_allgather() || limits.exchange.gathered_gate) {
    return no("it needs decode.exchange = \"allgather\" and decode.gate = \"local\"");
  }
  const SlotFacts facts = facts_of(placement);
  if (facts.rank_without_expert) {
    return no("a rank has no expert in some layer");
  }
  // Rows of an expert would be spread over both slots, and its weights read twice.
  if (routing.decode == RoutingPolicy::even && facts.expert_twice_on_rank) {
    return no("a rank has an expert in two slots, which routing.decode = \"even\" would both use");
  }
  const std::int64_t round_rows = ExpertService::sizes(spec, placement.num_ranks, limits).round_rows;
  const std::int64_t fitting = round_rows / (placement.num_ranks * spec.moe.top_k);
  const std::int64_t wanted = power_of_two_from(limits.max_decode_rows);
  const std::int64_t room = std::min(fitting, limits.max_rows);
  if (room < 1) {
    return no("exchange.memory does not hold one row per rank");
  }
  return {std::min(wanted, static_cast<std::int64_t>(std::bit_floor(at(room))))};
}

ListedDecode::ListedDecode(const ModelSpec& spec, const Placement& placement, const RoutingSettings& routing,
                           ExpertStore& store, ExpertService& service, Gate& gate, DeviceExchange& exchange,
                           PhaseClock& clock, const DecoderLimits& limits, std::int64_t most_rows)
    : spec_(&spec),
      store_(&store),
      service_(&service),
      gate_(&gate),
      exchange_(&exchange),
      clock_(&clock),
      shape_{spec.hidden_size, spec.moe.top_k},
      most_rows_(most_rows),
      max_rows_(limits.max_rows),
      wants_fixed_messages_(limits.listed.fixed_messages),
      num_layers_(placement.num_layers),
      router_(policy_of(routing), router_sizes(placement, placement.num_ranks * most_rows * spec.moe.top_k)),
      row_begins_("row begins of steps", num_sizes(most_rows) * (placement.num_ranks + 1)),
      expert_ids_("expert ids of layers", num_layers_ * most_rows * shape_.top_k),
      expert_weights_("expert weights of layers", num_layers_ * most_rows * shape_.top_k),
      tallies_("tallies of layers", num_layers_ * (placement.num_experts + placement.num_ranks)),
      counts_("counts of messages", 2 * (placement.num_ranks + 1)),
      mismatch_("mismatch of messages", 1),
      records_("decode records", most_rows * shape_.num_floats()),
      gathered_("decode records of all ranks", placement.num_ranks * most_rows * shape_.num_floats()),
      ids_of_all_("expert ids of all rows", placement.num_ranks * most_rows * shape_.top_k),
      send_bytes_(at(placement.num_ranks)),
      recv_bytes_(at(placement.num_ranks)) {
  const std::int64_t num_begins = placement.num_ranks + 1;
  for (std::int64_t i = 0; i < row_begins_.size(); ++i) {
    row_begins_[i] = static_cast<std::int32_t>((i % num_begins) << (i / num_begins));
  }
  row_begins_.to_kernels(row_begins_.size());
  make_tables(placement);
}

std::int64_t ListedDecode::planned_bytes(const ModelSpec& spec, const Placement& placement, std::int64_t most_rows) {
  const std::int64_t num_ranks = placement.num_ranks;
  const std::int64_t top_k = spec.moe.top_k;
  const RecordShape shape{spec.hidden_size, top_k};
  const std::int64_t words = num_sizes(most_rows) * (num_ranks + 1) +
                             placement.num_layers * (2 * most_rows * top_k + placement.num_experts + num_ranks) +
                             2 * (num_ranks + 1) + (num_ranks + 1) * most_rows * shape.num_floats() +
                             num_ranks * most_rows * top_k;
  return words * float_bytes + static_cast<std::int64_t>(sizeof(HeaderMismatch)) +
         RoutingStep::planned_bytes(router_sizes(placement, num_ranks * most_rows * top_k));
}

std::int64_t ListedDecode::num_bytes() const {
  return row_begins_.num_bytes() + expert_ids_.num_bytes() + expert_weights_.num_bytes() + tallies_.num_bytes() +
         counts_.num_bytes() + mismatch_.num_bytes() + records_.num_bytes() + gathered_.num_bytes() +
         ids_of_all_.num_bytes() + router_.num_bytes();
}

void ListedDecode::make_tables(const Placement& placement) {
  const std::int64_t rank = exchange_->rank();
  for (std::int64_t layer = 0; layer < num_layers_; ++layer) {
    tables_.emplace_back(placement.layer(layer), placement.num_experts, placement.num_ranks, rank);
    std::vector<ExpertWeights> of_slots;
    for (const std::int32_t expert : slots_of(placement, layer, rank)) {
      of_slots.push_back(expert == Placement::empty_slot ? ExpertWeights{} : store_->acquire(layer, expert));
    }
    weights_.emplace_back(of_slots);
  }
}

bool ListedDecode::serves(const RowBatch& batch) const {
  return batch.decode && *std::max_element(batch.rows_of_rank.begin(), batch.rows_of_rank.end()) <= most_rows_;
}

void ListedDecode::begin_step(const RowBatch& batch) {
  padded_rows_ = power_of_two_from(*std::max_element(batch.rows_of_rank.begin(), batch.rows_of_rank.end()));
  // Messages of one length take more room than the rows in them; small batches have it.
  const bool fits = exchange_->size() * padded_rows_ <= max_rows_;
  capacity_ = wants_fixed_messages_ && fits ? own_assignments() : 0;
  mismatch_[0] = {};
  mismatch_.to_kernels(1);
}

const std::int32_t* ListedDecode::row_begin() const {
  return row_begins_.kernels() + std::countr_zero(at(padded_rows_)) * (exchange_->size() + 1);
}

ResultMessages ListedDecode::messages() const {
  return {exchange_->size(), shape_.hidden_size, capacity_};
}

void ListedDecode::choose(std::int64_t moe_layer, const float* normed, const std::int32_t* positions,
                          const RouterWeights& router) {
  std::int32_t* ids = expert_ids_.kernels() + moe_layer * own_assignments();
  gate_->choose(normed, padded_rows_, router, ids, expert_weights_.kernels() + moe_layer * own_assignments());
  pack_records(normed, ids, positions, padded_rows_, shape_, records_.data());
}

void ListedDecode::gather() {
  const std::int64_t message_bytes = padded_rows_ * shape_.num_floats() * float_bytes;
  std::fill(recv_bytes_.begin(), recv_bytes_.end(), message_bytes);
  exchange_->set_phase("dispatch");
  clock_->lap(Lap::compute);
  exchange_->all_gather({reinterpret_cast<const std::byte*>(records_.data()), at(message_bytes)},
                        {reinterpret_cast<std::byte*>(gathered_.data()), at(exchange_->size() * message_bytes)},
                        recv_bytes_);
  clock_->lap(Lap::dispatch);
  exchange_->set_phase("experts");
}

void ListedDecode::serve(std::int64_t moe_layer) {
  const std::int64_t num_ranks = exchange_->size();
  const std::int64_t num_rows = num_ranks * padded_rows_;
  unpack_ids(gathered_.data(), num_rows, shape_, ids_of_all_.data());
  router_.route(tables_[at(moe_layer)], {ids_of_all_.data(), num_rows, shape_.top_k, row_begin()});

  const RoutingResult& routing = router_.result();
  const ExpertService::Scratch scratch = service_->scratch();
  const std::int64_t max_work = num_rows * shape_.top_k;
  listed_expert_ffn(weights_[at(moe_layer)],
                    {routing.work_begin, routing.work, max_work, gathered_.data(), shape_.num_floats(), shape_.top_k},
                    scratch.hidden, scratch.outputs);
  pack_results(routing, messages(), max_work, scratch.outputs, scratch.send.data());

  const std::int64_t num_experts = spec_->moe.num_experts;
  std::int32_t* tally = tallies_.kernels() + moe_layer * (num_experts + num_ranks);
  queue_copy(tally, routing.rows_of_expert, num_experts * static_cast<std::int64_t>(sizeof(std::int32_t)));
  queue_copy(tally + num_experts, routing.activated, num_ranks * static_cast<std::int64_t>(sizeof(std::int32_t)));
  if (!has_fixed_messages()) {
    // sent_begin and returned_begin lie together.
    queue_copy_to_host(counts_.host(), routing.sent_begin, counts_.num_bytes());
  }
}

void ListedDecode::give_back() {
  const std::int64_t num_ranks = exchange_->size();
  const std::int64_t header_bytes = ResultMessages::header_floats * float_bytes;
  const std::int64_t row_bytes = shape_.hidden_size * float_bytes;
  if (!has_fixed_messages()) {
    wait_for_kernels();
  }
  const std::int32_t* sent_begin = counts_.host();
  const std::int32_t* returned_begin = sent_begin + num_ranks + 1;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    const std::int64_t sent = has_fixed_messages() ? capacity_ : sent_begin[rank + 1] - sent_begin[rank];
    const std::int64_t returned = has_fixed_messages() ? capacity_ : returned_begin[rank + 1] - returned_begin[rank];
    send_bytes_[at(rank)] = header_bytes + sent * row_bytes;
    recv_bytes_[at(rank)] = header_bytes + returned * row_bytes;
  }
  const std::int64_t sent_bytes = std::accumulate(send_bytes_.begin(), send_bytes_.end(), std::int64_t{0});
  const std::int64_t received_bytes = std::accumulate(recv_bytes_.begin(), recv_bytes_.end(), std::int64_t{0});
  const ExpertService::Scratch scratch = service_->scratch();
  METRO_REQUIRE(sent_bytes <= std::ssize(std::as_bytes(scratch.send)) &&
                    received_bytes <= std::ssize(std::as_bytes(scratch.results)),
                fmt::format("{} and {} bytes of messages", sent_bytes, received_bytes));
  exchange_->set_phase("combine");
  clock_->lap(Lap::experts);  // and routing: a mark in between would split a graph
  exchange_->all_to_all(std::as_bytes(scratch.send).first(at(sent_bytes)), send_bytes_,
                        std::as_writable_bytes(scratch.results).first(at(received_bytes)), recv_bytes_);
  clock_->lap(Lap::combine);
  exchange_->set_phase("attention and dense layers");
}

void ListedDecode::combine(std::int64_t moe_layer, float* residual) {
  const float* received = service_->scratch().results.data();
  check_headers(router_.result(), messages(), moe_layer, received, mismatch_.kernels());
  combine_results(router_.result(), messages(), received, expert_weights_.kernels() + moe_layer * own_assignments(),
                  padded_rows_, shape_.top_k, residual);
}

void ListedDecode::end_step(const RowBatch& batch, StepObserver* observer) {
  mismatch_.to_host(1);
  if (observer != nullptr) {
    expert_ids_.to_host(num_layers_ * own_assignments());
    expert_weights_.to_host(num_layers_ * own_assignments());
    tallies_.to_host(tallies_.size());
  }
  wait_for_kernels();
  require_no_mismatch();
  if (observer == nullptr) {
    return;
  }
  const auto num_own = at(batch.num_rows() * shape_.top_k);
  const std::size_t num_experts = at(spec_->moe.num_experts);
  const std::size_t tally_size = num_experts + at(exchange_->size());
  for (std::int64_t layer = 0; layer < num_layers_; ++layer) {
    const std::size_t first = at(layer * own_assignments());
    observer->router_choices(layer, batch.num_rows(), expert_ids_.span().subspan(first, num_own),
                             expert_weights_.span().subspan(first, num_own));
    const auto tally = tallies_.span().subspan(at(layer) * tally_size, tally_size);
    observer->routed(layer, tally.first(num_experts), tally.subspan(num_experts));
  }
}

void ListedDecode::require_no_mismatch() const {
  const HeaderMismatch& mismatch = mismatch_[0];
  if (mismatch.is_set != 0) {
    throw_disagreement(exchange_->rank(), mismatch.sender, mismatch.moe_layer,
                       {mismatch.own_checksum, mismatch.expected_count}, {mismatch.checksum, mismatch.count});
  }
}

}  // namespace metro
