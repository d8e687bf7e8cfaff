#include "engine/limits.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "engine/exchange_setup.hpp"
#include "engine/free_memory.hpp"
#include "engine/listed_setup.hpp"
#include "engine/prefill_setup.hpp"
#include "kernels/buffer.hpp"
#include "kernels/queue.hpp"
#include "placement/loads.hpp"
#include "placement/node_order.hpp"
#include "plan/trace_placement.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

namespace metro {

namespace {

Placement placement_of(const Deck& deck, const ModelSpec& spec, const JobContext& job) {
  const std::int64_t num_layers = spec.num_moe_layers();
  const std::int64_t num_experts = spec.moe.num_experts;
  const auto num_ranks = static_cast<std::int64_t>(job.rank_to_node.size());
  const NodeOrder order = node_order(job.rank_to_node);
  const std::string& wish = deck.experts.placement;
  const std::int64_t slots = slots_per_rank_of(deck, num_experts, num_ranks);
  if (wish == "trivial") {
    return place_trivial(num_layers, num_experts, num_ranks, slots);
  }
  if (wish == "eplb") {
    std::vector<std::int64_t> loads;
    if (!deck.experts.loads.empty()) {
      loads = read_loads(deck.experts.loads, num_layers, num_experts);
    }
    return on_ranks_of(
        order, place_eplb(loads, num_layers, num_experts, spec.moe.gate.num_groups, order.num_nodes, num_ranks, slots));
  }
  if (wish == "activation-aware") {
    return on_ranks_of(
        order, place_from_trace(deck.experts.trace,
                                {num_layers, num_experts, spec.moe.gate.num_groups, order.num_nodes, num_ranks, slots,
                                 deck.batch.max_sequences_per_rank * num_ranks, deck.run.threads}));
  }
  Placement placement = read_placement(wish);
  check_placement(placement, num_layers, num_experts, num_ranks, wish);
  const bool says_slots = deck.experts.slots_per_rank > 0 || deck.experts.replication != 1.0;
  if (says_slots && slots != placement.slots_per_rank) {
    throw Error(
        ExitCode::usage,
        fmt::format("experts.placement = {} has {} slots per rank, but {} gives {}; leave that key at its default",
                    wish, placement.slots_per_rank,
                    deck.experts.slots_per_rank > 0
                        ? fmt::format("experts.slots_per_rank = {}", deck.experts.slots_per_rank)
                        : fmt::format("experts.replication = {}", deck.experts.replication),
                    slots));
  }
  return placement;
}

std::int64_t context_of(const Deck& deck, const ModelSpec& spec) {
  const std::int64_t context = deck.model.max_context > 0 ? deck.model.max_context : spec.max_positions;
  if (context > spec.max_positions) {
    throw Error(ExitCode::usage, fmt::format("model.max_context = {}: the model was made for at most {} positions",
                                             context, spec.max_positions));
  }
  if (context < 2) {
    throw Error(ExitCode::usage,
                fmt::format("model.max_context = {}: at least 2 (a prompt token and one more)", context));
  }
  return context;
}

std::int64_t kv_blocks_of(const Deck& deck, std::int64_t context, std::int64_t block_bytes, std::int64_t left) {
  const KvRoom room = kv_room(deck, context, block_bytes, left);
  if (!room.holds_a_sequence()) {
    throw Error(
        ExitCode::usage,
        fmt::format("{} bytes for the KV cache of a rank ({}) do not hold one sequence of model.max_context = {} "
                    "positions: that takes {} bytes; lower model.max_context{}",
                    room.budget, deck.kv.memory > 0 ? "kv.memory" : "what is free beside the weights", context,
                    room.blocks_per_sequence * block_bytes, deck.kv.memory > 0 ? " or raise kv.memory" : ""));
  }
  return room.blocks;
}

// This rank's share of what its device, or else its node, has left.
std::int64_t free_bytes_of(const JobContext& job, std::size_t rank) {
  if (const std::optional<std::int64_t> device_bytes = kernel_memory_room()) {
    return *device_bytes / (job.num_ranks_on_device.empty() ? 1 : job.num_ranks_on_device[rank]);
  }
  return free_memory_bytes() / job.num_ranks_on_node()[rank];
}

// Collective.
SharingChoice agreed_sharing(const Deck& deck, const CheckpointReader& checkpoint, std::int64_t context,
                             const std::vector<std::int64_t>& free_of_rank, const JobContext& job,
                             Transport& transport) {
  SharingFacts facts;
  facts.in_host_memory = kernels_use_host_memory();
  facts.num_bytes = DenseWeights::planned_bytes(checkpoint) + RopeTable::planned_bytes(checkpoint.spec(), context);
  facts.rank_to_node = job.rank_to_node;
  facts.free_of_rank = free_of_rank;
  facts.room_for_rank = gather_integers(transport, transport.node_memory_room());
  return choose_sharing(deck.model.sharing, facts);
}

bool devices_are_shared(const JobContext& job) {
  return std::ranges::any_of(job.num_ranks_on_device, [](std::int64_t number) { return number > 1; });
}

void require_fit(const RunLimits& limits, const JobContext& job) {
  for (std::size_t rank = 0; rank < limits.memory_of_rank.size(); ++rank) {
    const MemoryPlan& plan = limits.memory_of_rank[rank];
    if (plan.total() > limits.free_of_rank[rank]) {
      throw AgreedError(
          ExitCode::usage,
          fmt::format(
              "rank {} ({}) needs {} bytes (dense {}, experts {}, KV cache {}, buffers {}) and may take {}: lower "
              "experts.replication, batch.max_sequences_per_rank, batch.prefill_chunk, exchange.memory or "
              "model.max_context, or use more {}",
              rank, job.rank_to_host[rank], plan.total(), plan.dense, plan.experts, plan.kv, plan.buffers,
              limits.free_of_rank[rank], devices_are_shared(job) ? "GPUs" : "ranks"));
    }
  }
}

}  // namespace

Placement make_placement(const Deck& deck, const ModelSpec& spec, const JobContext& job, Transport& transport) {
  const std::string bytes = from_rank_0(transport, [&] {
    const Placement placement = placement_of(deck, spec, job);
    std::string content(sizeof(std::int64_t), '\0');
    std::memcpy(content.data(), &placement.slots_per_rank, sizeof(std::int64_t));
    return content.append(reinterpret_cast<const char*>(placement.slot_to_expert.data()),
                          placement.slot_to_expert.size() * sizeof(std::int32_t));
  });
  Placement placement;
  placement.num_layers = spec.num_moe_layers();
  placement.num_experts = spec.moe.num_experts;
  placement.num_ranks = transport.size();
  std::memcpy(&placement.slots_per_rank, bytes.data(), sizeof(std::int64_t));
  placement.slot_to_expert.resize((bytes.size() - sizeof(std::int64_t)) / sizeof(std::int32_t));
  std::memcpy(placement.slot_to_expert.data(), bytes.data() + sizeof(std::int64_t),
              bytes.size() - sizeof(std::int64_t));
  return placement;
}

PlacementMaker placement_maker(const ModelSpec& spec, const JobContext& job, const Placement& first) {
  return [num_groups = spec.moe.gate.num_groups, order = node_order(job.rank_to_node), num_layers = first.num_layers,
          num_experts = first.num_experts, num_ranks = first.num_ranks,
          slots = first.slots_per_rank](std::span<const std::int64_t> loads) {
    return on_ranks_of(order,
                       place_eplb(loads, num_layers, num_experts, num_groups, order.num_nodes, num_ranks, slots));
  };
}

std::int64_t slots_per_rank_of(const Deck& deck, std::int64_t num_experts, std::int64_t num_ranks) {
  return deck.experts.slots_per_rank > 0 ? deck.experts.slots_per_rank
                                         : slots_for_replication(num_experts, num_ranks, deck.experts.replication);
}

KvRoom kv_room(const Deck& deck, std::int64_t context, std::int64_t block_bytes, std::int64_t left) {
  KvRoom room{};
  room.blocks_per_sequence = ceil_div(context, deck.kv.block_tokens);
  const auto share = static_cast<std::int64_t>(static_cast<double>(left) * kv_share);
  room.budget = deck.kv.memory > 0 ? deck.kv.memory : std::max<std::int64_t>(share, 0);
  const std::int64_t wanted = deck.batch.max_sequences_per_rank * room.blocks_per_sequence;
  room.blocks = std::min(wanted, room.budget / block_bytes);
  return room;
}

DecoderLimits decoder_limits(const Deck& deck, const ModelSpec& spec, std::int64_t num_ranks, bool pads_decode) {
  const std::int64_t sequences = deck.batch.max_sequences_per_rank;
  DecoderLimits decoder;
  decoder.max_rows = std::max(deck.batch.prefill_chunk, sequences);
  if (pads_decode) {
    decoder.max_rows = std::max(decoder.max_rows, static_cast<std::int64_t>(std::bit_ceil(at(sequences))));
  }
  decoder.max_decode_rows = sequences;
  decoder.max_sampled_rows = sequences;
  decoder.max_context = context_of(deck, spec);
  decoder.block_tokens = deck.kv.block_tokens;
  decoder.exchange_bytes = deck.exchange.memory;
  decoder.movable_experts = deck.experts.rebalance_steps > 0;
  decoder.exchange = exchange_settings(deck, spec, num_ranks);
  decoder.kv_blocks = 0;
  return decoder;
}

RunLimits make_limits(const Deck& deck, const CheckpointReader& checkpoint, const Placement& placement,
                      const RoutingSettings& routing, const JobContext& job, Transport& transport) {
  const ModelSpec& spec = checkpoint.spec();
  RunLimits limits;
  std::int64_t free_bytes = 0;
  DecoderLimits& decoder = limits.decoder;
  agree(transport, [&] {
    free_bytes = free_bytes_of(job, at(transport.rank()));
    decoder = decoder_limits(deck, spec, transport.size(), !kernels_use_host_memory());
  });
  const std::int64_t context = decoder.max_context;
  limits.free_of_rank = gather_integers(transport, free_bytes);

  agree(transport, [&] {
    ListedChoice choice = choose_listed(deck, spec, placement, routing, decoder);
    decoder.listed = choice.settings;
    limits.decode = std::move(choice.text);
    PrefillChoice prefill = choose_prefill(deck.kernels.reproducible, checkpoint);
    decoder.grouped_experts = prefill.grouped_experts;
    limits.prefill = std::move(prefill.text);
  });

  limits.sharing = agreed_sharing(deck, checkpoint, context, limits.free_of_rank, job, transport);

  // All ranks get the same number of blocks: the least that any of them has room for.
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const bool shares = limits.sharing.sharing == Sharing::per_node;
  limits.memory_of_rank =
      plan_memory_of_ranks(checkpoint, placement, decoder,
                           shares ? job.num_ranks_on_node() : std::vector<std::int64_t>(at(transport.size()), 1));
  for (std::size_t rank = 0; rank < limits.memory_of_rank.size(); ++rank) {
    least = std::min(least, limits.free_of_rank[rank] - limits.memory_of_rank[rank].total());
  }
  require_fit(limits, job);  // before the KV cache: weights that do not fit are the better message
  const std::int64_t block_bytes = kv_bytes_per_block(spec, deck.kv.block_tokens);
  agree(transport, [&] { decoder.kv_blocks = kv_blocks_of(deck, context, block_bytes, least); });
  for (MemoryPlan& plan : limits.memory_of_rank) {
    plan.kv = decoder.kv_blocks * block_bytes;
  }
  require_fit(limits, job);

  SchedulerLimits& scheduler = limits.scheduler;
  scheduler.num_ranks = transport.size();
  scheduler.max_sequences_per_rank = deck.batch.max_sequences_per_rank;
  scheduler.prefill_chunk = deck.batch.prefill_chunk;
  scheduler.prefill_min = deck.batch.prefill_min;
  scheduler.kv_blocks_per_rank = decoder.kv_blocks;
  scheduler.block_tokens = decoder.block_tokens;
  scheduler.share_prefixes = deck.kv.share_prefixes == "on";
  scheduler.rope_switch_at = spec.rope.switch_at;
  scheduler.end_tokens = spec.end_tokens;
  // Rank 0 writes all completions; the others need the tokens of their own sequences only.
  scheduler.keeps_tokens_of = transport.rank() == 0 ? SchedulerLimits::all_ranks : transport.rank();
  return limits;
}

}  // namespace metro
