// Times what every rank does for all ranks.
#include "base/error.hpp"
#include "base/held_bytes.hpp"
#include "base/integers.hpp"
#include "bench/model_shapes.hpp"
#include "bench/pretended_step.hpp"
#include "bench/random_weights.hpp"
#include "bench/read_speed.hpp"
#include "bench/replicated_bench.hpp"
#include "bench/synthetic_batches.hpp"
#include "deck/deck.hpp"
#include "decoder/decode_routing.hpp"
#include "decoder/decoder.hpp"
#include "engine/exchange_setup.hpp"
#include "engine/sharing.hpp"
#include "placement/moves.hpp"
#include "placement/placement.hpp"
#include "routing/step_router.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace metro {

namespace {

const ModelShape& shape_of(const ReplicatedBenchOptions& options) {
  return model_shape(options.model, "bench replicated: --model");
}

RoutingPolicy policy_of(const std::string& name) {
  const auto policy = routing_policy_named(name);
  METRO_REQUIRE(policy.has_value(), name);
  return *policy;
}

// The samples of several things, in the order in which they were first measured.
class Samples {
 public:
  void add(const std::string& name, double us) {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one.first == name; });
    (found == all_.end() ? all_.emplace_back(name, std::vector<double>()) : *found).second.push_back(us);
  }
  void time(const std::string& name, const std::function<void()>& work) {
    const Clock::time_point begin = Clock::now();
    work();
    add(name, 1e6 * seconds_between(begin, Clock::now()));
  }
  std::vector<ReplicatedTime> times() const {
    std::vector<ReplicatedTime> times;
    for (const auto& [name, samples] : all_) {
      times.push_back({name, least_of(samples), median_of(samples)});
    }
    return times;
  }

 private:
  std::vector<std::pair<std::string, std::vector<double>>> all_;
};

// The widths of the model, as far as memory between ranks is planned by them.
ModelSpec spec_of(const ModelShape& shape) {
  ModelSpec spec;
  spec.num_layers = 1;
  spec.hidden_size = shape.hidden;
  spec.vocab_size = shape.vocab;
  spec.moe.num_experts = shape.num_experts;
  spec.moe.top_k = shape.top_k;
  spec.moe.intermediate_size = shape.expert_width;
  spec.layers = {LayerKind::moe};
  return spec;
}

// The defaults of a deck.
DecoderLimits deck_limits(std::int64_t batch) {
  DecoderLimits limits;
  limits.max_rows = std::max<std::int64_t>(512, batch);
  limits.max_decode_rows = batch;
  limits.max_sampled_rows = batch;
  limits.exchange_bytes = std::int64_t{256} << 20;
  limits.exchange.mode = ExchangeMode::allgather;
  return limits;
}

// Every rank makes the memory plans of all ranks, over all layers of a model.
void plan_all_memory(const RandomWeights& weights, const Placement& placement, std::int64_t ranks_per_node) {
  std::int64_t most = 0;
  for (const MemoryPlan& plan : plan_memory_of_ranks(
           weights, placement, deck_limits(32), std::vector<std::int64_t>(at(placement.num_ranks), ranks_per_node))) {
    most = std::max(most, plan.total());
  }
  METRO_REQUIRE(most > 0, "an empty memory plan");
}

// With decode.exchange = "auto", whichever way is measured to be faster.
std::int64_t auto_exchange_bytes(const ModelSpec& spec, std::int64_t num_ranks, DecoderLimits limits) {
  Deck deck;
  deck.decode.exchange = "auto";
  deck.decode.gate = "local";
  deck.exchange.levels = "auto";
  deck.batch.max_sequences_per_rank = limits.max_decode_rows;
  limits.exchange = exchange_settings(deck, spec, num_ranks);
  return DecodeDispatch::planned_bytes(spec, num_ranks, limits);
}

SharingFacts sharing_facts(std::int64_t num_ranks, std::int64_t ranks_per_node) {
  SharingFacts facts;
  facts.num_bytes = std::int64_t{1} << 30;
  for (const std::int32_t node : nodes_of_size(num_ranks, ranks_per_node)) {
    facts.rank_to_node.push_back(node);
  }
  facts.free_of_rank.assign(at(num_ranks), std::int64_t{2} << 30);
  facts.room_for_rank.assign(at(num_ranks), std::int64_t{8} << 30);
  return facts;
}

SchedulerLimits admission_limits(std::int64_t num_ranks, std::int64_t batch) {
  SchedulerLimits limits;
  limits.num_ranks = num_ranks;
  limits.max_sequences_per_rank = batch;
  limits.prefill_chunk = 512;
  limits.kv_blocks_per_rank = 2 * batch;
  return limits;
}

}  // namespace

ReplicatedCost cost_of_start(const ReplicatedBenchOptions& options, std::int64_t num_ranks) {
  const ModelShape& shape = shape_of(options);
  const std::int64_t experts = shape.num_experts;
  const std::int64_t slots = slots_for_replication(experts, num_ranks, options.replication);
  const std::vector<std::int64_t> loads =
      SyntheticBatches{.num_experts = experts, .num_tokens = 1, .top_k = shape.top_k}.loads();
  std::vector<std::int64_t> other_loads(loads.rbegin(), loads.rend());
  const std::vector<std::int32_t> nodes = nodes_of_size(num_ranks, options.ranks_per_node);
  ModelShape narrow = with_routed_experts_only(shape);
  narrow.num_heads = narrow.num_kv_heads = 1;
  narrow.head_dim = 64;
  constexpr std::int64_t num_layers = 48;
  const RandomWeights weights(model_spec_of(narrow, num_layers, 64), StoredType::bf16);
  const Placement of_all_layers = place_trivial(num_layers, experts, num_ranks, slots);
  const SharingFacts facts = sharing_facts(num_ranks, options.ranks_per_node);

  Samples samples;
  std::optional<Placement> placement;
  std::optional<ReplicaMap> map;
  std::optional<StepRouter> decode, prefill;
  for (std::int64_t repetition = 0; repetition < options.repetitions; ++repetition) {
    const auto place = [&](const std::vector<std::int64_t>& by) {
      return place_eplb(by, 1, experts, 1, 1 + nodes.back(), num_ranks, slots);
    };
    samples.time("EPLB placement of a layer", [&] { placement = place(loads); });
    samples.time("routing tables of a layer", [&] {
      decode.reset();
      prefill.reset();
      map.emplace(placement->layer(0), experts, num_ranks);
      decode.emplace(RoutingPolicy::exact, *map, StepRouterOptions{.rank_to_node = nodes});
      prefill.emplace(RoutingPolicy::even, *map,
                      StepRouterOptions{.numbering = RowNumbering::own_rows, .rank_to_node = nodes});
    });
    samples.time("rebalancing of a layer", [&] {
      const Placement next = keep_slots(*placement, place(other_loads));
      METRO_REQUIRE(num_slots_changed(*placement, next) >= 0 && balancedness(next, 0, loads) > 0.0, "no placement");
      plan_moves(*placement, next, 0);
    });
    samples.time("memory plans of all ranks, 48 layers",
                 [&] { plan_all_memory(weights, of_all_layers, options.ranks_per_node); });
    samples.time("sharing of dense weights", [&] { choose_sharing("auto", facts); });
  }
  return {num_ranks,
          samples.times(),
          {{"placement of a layer", held_bytes(placement->slot_to_expert)},
           {"routing tables of a layer", map->num_bytes() + decode->num_bytes() + prefill->num_bytes()}}};
}

ReplicatedCost cost_of_steps(const ReplicatedBenchOptions& options, std::int64_t num_ranks, std::int64_t batch,
                             const std::string& policy) {
  const ModelShape& shape = shape_of(options);
  PretendedStepOptions step_options;
  step_options.shape = &shape;
  step_options.num_ranks = num_ranks;
  step_options.rank = num_ranks / 2;
  step_options.ranks_per_node = options.ranks_per_node;
  step_options.batch = batch;
  step_options.slots_per_rank = slots_for_replication(shape.num_experts, num_ranks, options.replication);
  step_options.policy = policy_of(policy);
  step_options.num_generated = options.repetitions + 3;

  Samples samples;
  for (std::int64_t repetition = 0; repetition < options.repetitions; ++repetition) {
    Scheduler scheduler(admission_limits(num_ranks, batch));
    std::vector<Request> requests = pretended_requests(num_ranks * batch, 16);
    samples.time("admission of all sequences", [&] {
      scheduler.add(std::move(requests));
      scheduler.plan_step();
    });
  }
  PretendedStep step(step_options);
  samples.add("layer of a prefill step, routing", step.prefill().layer_routing);
  step.decode();  // warm up
  for (std::int64_t repetition = 0; repetition < options.repetitions; ++repetition) {
    const PretendedTimes times = step.decode();
    samples.add("plan", times.plan);
    samples.add("rows of this rank", times.batch);
    samples.add("layer of a decode step, routing", times.layer_routing);
    samples.add("step record", times.record);
    samples.add("tokens to the scheduler", times.apply);
  }

  const ModelSpec spec = spec_of(shape);
  DecoderLimits limits = deck_limits(batch);
  const ExpertService::Sizes service = ExpertService::sizes(spec, num_ranks, limits);
  const std::vector<ReplicaMap> no_maps;
  DecodeRouting routing(spec, no_maps, {}, step_options.rank, num_ranks, batch);
  ReplicatedCost cost{num_ranks, samples.times(), {}};
  cost.memory = {
      {"scheduler", step.scheduler_bytes()},
      {"plan", step.plan_bytes()},
      {"step record", step.record_bytes()},
      {"routing of the rows of all ranks", routing.num_row_bytes()},
      {"ids of all ranks", IdsExchange::planned_bytes(spec, num_ranks, batch)},
      {"expert rows served at a time, and their results",
       service.num_bytes() + RowExchange::planned_bytes(spec, num_ranks, limits.max_rows, service.round_rows)},
      {"decode exchange, allgather", DecodeDispatch::planned_bytes(spec, num_ranks, limits)},
      {"decode exchange, auto", auto_exchange_bytes(spec, num_ranks, limits)}};
  return cost;
}

}  // namespace metro
