#include "engine/job.hpp"

#include "base/build_info.hpp"
#include "engine/limits.hpp"
#include "engine/request_feed.hpp"
#include "engine/step_loop.hpp"
#include "report/run_report.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace metro {

namespace {

// What only rank 0 has: input and output; and the tokenizer, which other ranks load when they need it.
struct Desk {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<RequestReader> reader;
  std::unique_ptr<CompletionWriter> writer;
};

std::unique_ptr<Tokenizer> load_tokenizer(const CheckpointReader& checkpoint) {
  return Tokenizer::load([&](const std::string& name) { return checkpoint.source_file(name); });
}

Desk open_desk(const Deck& deck, const JobOptions& options, const CheckpointReader& checkpoint,
               const RunLimits& limits) {
  Desk desk;
  desk.tokenizer = load_tokenizer(checkpoint);
  RequestDefaults defaults;
  defaults.max_tokens = deck.requests.max_tokens;
  defaults.max_context = limits.decoder.max_context;
  defaults.vocab_size = checkpoint.spec().vocab_size;
  defaults.temperature = deck.requests.temperature;
  defaults.model = checkpoint.spec().family;
  desk.reader = std::make_unique<RequestReader>(deck.requests.input, defaults, desk.tokenizer.get());
  desk.writer = std::make_unique<CompletionWriter>(deck.output.directory, options.overwrite, desk.tokenizer.get());
  return desk;
}

StartTable start_table(const Deck& deck, const CheckpointReader& checkpoint, const Placement& placement,
                       const RunLimits& limits, const JobContext& job) {
  StartTable table;
  table.version = build_description();
  table.software = job.software;
  table.checkpoint = checkpoint.path();
  table.checkpoint_digest = to_hex(checkpoint.digest());
  table.spec = &checkpoint.spec();
  table.placement = &placement;
  table.placement_name = deck.experts.placement;
  table.decode_policy = deck.routing.decode;
  table.prefill_policy = deck.routing.prefill;
  table.rank_to_host = job.rank_to_host;
  table.rank_to_node = job.rank_to_node;
  table.memory_of_rank = limits.memory_of_rank;
  table.free_of_rank = limits.free_of_rank;
  table.kv_tokens_per_rank = limits.decoder.kv_blocks * limits.decoder.block_tokens;
  table.max_context = limits.decoder.max_context;
  return table;
}

RoutingPolicy decode_policy_of(const Deck& deck) {
  const auto policy = routing_policy_named(deck.routing.decode);
  METRO_REQUIRE(policy.has_value(), "the deck let an unknown policy pass: " + deck.routing.decode);
  return *policy;
}

struct Totals {
  std::int64_t max = 0;
  std::int64_t sum = 0;
};

Totals over_ranks(Transport& transport, std::int64_t value) {
  Totals totals{value, value};
  transport.all_reduce_max({&totals.max, 1});
  transport.all_reduce_sum({&totals.sum, 1});
  return totals;
}

}  // namespace

std::int64_t JobContext::num_nodes() const {
  return 1 + *std::max_element(rank_to_node.begin(), rank_to_node.end());
}

std::int64_t JobContext::num_ranks_on_node_of(std::int64_t rank) const {
  return std::count(rank_to_node.begin(), rank_to_node.end(), rank_to_node[static_cast<std::size_t>(rank)]);
}

ExitCode run_job(const Deck& deck, const JobOptions& options, const JobContext& job, Transport& transport) {
  const bool first_rank = transport.rank() == 0;
  const Clock::time_point load_begin = Clock::now();

  // 1. The checkpoint, the same on all ranks.
  std::optional<CheckpointReader> checkpoint;
  agree(transport, [&] { checkpoint.emplace(deck.model.checkpoint); });
  require_same(transport, "checkpoint", to_hex(checkpoint->digest()));

  // 2. Where experts sit, and what every rank allocates.
  const Placement placement = make_placement(deck, checkpoint->spec(), job, transport);
  const RunLimits limits = make_limits(deck, *checkpoint, placement, job, transport);
  if (first_rank) {
    StartTable table = start_table(deck, *checkpoint, placement, limits, job);
    table.transport = transport.name();
    print_start_table(table, stdout);
  }
  if (options.dry_run) {
    return ExitCode::done;
  }

  // 3. Input and output on rank 0, before the long part: what is wrong with them shows at once.
  Desk desk;
  from_rank_0(transport, [&] {
    desk = open_desk(deck, options, *checkpoint, limits);
    return std::string();
  });

  // 4. Weights.
  transport.set_phase("loading");
  RopeTable rope = make_rope_table(checkpoint->spec(), limits.decoder.max_context, transport);
  std::optional<Decoder> decoder;
  agree(transport, [&] {
    decoder.emplace(*checkpoint, placement, decode_policy_of(deck), transport, std::move(rope), limits.decoder);
  });
  const double load_s = seconds_between(load_begin, Clock::now());

  // 5. Steps until everything is answered.
  Scheduler scheduler(limits.scheduler);
  const std::int64_t window = std::max<std::int64_t>(64, transport.size() * deck.batch.max_sequences_per_rank);
  RequestFeed feed(desk.reader.get(), desk.writer.get(), transport, window);
  Sampler sampler(checkpoint->spec().vocab_size, limits.scheduler.end_tokens, [&]() -> const Tokenizer& {
    if (desk.tokenizer == nullptr) {
      desk.tokenizer = load_tokenizer(*checkpoint);
    }
    METRO_REQUIRE(desk.tokenizer != nullptr, "a request with stop strings was accepted without a tokenizer");
    return *desk.tokenizer;
  });
  StepLoop loop(*decoder, sampler, scheduler, feed, desk.writer.get(), transport, limits.decoder);
  RunStatistics statistics;
  ActivationStatistics activation(placement);
  Progress progress(stderr);
  loop.run(statistics, first_rank ? &activation : nullptr, first_rank ? &progress : nullptr);
  if (first_rank) {
    desk.writer->flush();
  }

  // 6. What came of it.
  const Totals read = over_ranks(transport, checkpoint->bytes_read());
  const Totals sent = over_ranks(transport, transport.bytes_sent());
  std::int64_t num_rejected = feed.num_rejected();
  transport.all_reduce_max({&num_rejected, 1});
  if (first_rank) {
    print_summary(
        {&statistics, &activation, num_rejected, load_s, read.max, read.sum, sent.max, sent.sum, deck.output.directory},
        stdout);
  }
  return options.strict && num_rejected > 0 ? ExitCode::input : ExitCode::done;
}

}  // namespace metro
