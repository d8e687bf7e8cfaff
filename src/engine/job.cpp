#include "engine/job.hpp"

#include "base/build_info.hpp"
#include "engine/desk.hpp"
#include "engine/exchange_setup.hpp"
#include "engine/limits.hpp"
#include "engine/request_feed.hpp"
#include "engine/sharing.hpp"
#include "engine/step_loop.hpp"
#include "report/run_report.hpp"
#include "report/summary.hpp"
#include "transport/agree.hpp"
#include "transport/device_exchange.hpp"

#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>

namespace metro {

namespace {

// "mpi", or where kernels have memory of their own "mpi, rows by nccl (auto: each rank has a GPU of its own)".
std::string transport_text(const Transport& transport, const ExchangeDecision& rows) {
  if (rows.way == ExchangeWay::host) {
    return transport.name();
  }
  return fmt::format("{}, rows by {}{}", transport.name(), name_of(rows.way),
                     rows.why.empty() ? "" : fmt::format(" ({})", rows.why));
}

RunIdentity identity_of(const Deck& deck, const CheckpointReader& checkpoint, const Placement& placement,
                        const std::string& exchange, const JobContext& job, const Transport& transport) {
  RunIdentity identity;
  identity.build = build_description();
  identity.software = job.software;
  identity.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  identity.deck = deck_to_toml(deck);
  identity.checkpoint = checkpoint.path();
  identity.checkpoint_digest = to_hex(checkpoint.digest());
  identity.transport = transport_text(transport, job.rows);
  identity.decode_policy = deck.routing.decode;
  identity.prefill_policy = deck.routing.prefill;
  identity.decode_exchange = exchange;
  identity.placement_name = deck.experts.placement;
  identity.spec = checkpoint.spec();
  identity.placement = placement;
  identity.rank_to_host = job.rank_to_host;
  identity.rank_to_node = job.rank_to_node;
  identity.threads_per_rank = deck.run.threads;
  identity.rank_to_binding = job.rank_to_binding;
  identity.shard = text_of(deck.requests.shard);
  return identity;
}

RoutingPolicy policy_named(const std::string& name) {
  const auto policy = routing_policy_named(name);
  METRO_REQUIRE(policy.has_value(), "the deck let an unknown policy pass: " + name);
  return *policy;
}

RoutingSettings routing_of(const Deck& deck, const JobContext& job) {
  const Deck::Routing& routing = deck.routing;
  return {.decode = policy_named(routing.decode),
          .prefill = policy_named(routing.prefill),
          .seed = static_cast<std::uint64_t>(routing.seed),
          .costs = {routing.read_fixed_ns, routing.read_per_expert_ns, routing.compute_fixed_ns,
                    routing.compute_per_row_ns},
          .rank_to_node = {job.rank_to_node.begin(), job.rank_to_node.end()},
          .prefer_own_node = routing.ties == "near"};
}

// For the start-up table.
std::string sharing_line(const SharingChoice& choice) {
  return fmt::format("dense weights once per {} ({})", choice.sharing == Sharing::per_node ? "node" : "rank",
                     choice.reason);
}

// Likewise.
std::string prefixes_line(const SchedulerLimits& limits) {
  if (!limits.share_prefixes) {
    return "every prompt is computed as a whole (kv.share_prefixes = \"off\")";
  }
  return fmt::format("prompts that begin alike share blocks of {}; up to {} of a rank are remembered",
                     counted(limits.block_tokens, "position"), counted(limits.most_prefix_blocks(), "block"));
}

// Collective. Where experts come from when they move; measured if the deck leaves it open. Rank 0 says what it is.
WeightSource weight_source(const Deck& deck, Decoder& decoder, const Transport& transport) {
  const std::string& wish = deck.experts.rebalance_source;
  WeightSource source = wish == "checkpoint" ? WeightSource::checkpoint : WeightSource::peers;
  std::string why;
  if (wish == "auto" && transport.size() > 1) {  // a single rank never fetches anything
    const SourceTimes times = decoder.measure_sources();
    source = times.faster();
    why = fmt::format(" (an expert from other ranks {:.3f} ms, from the checkpoint {:.3f} ms)",
                      1e-6 * static_cast<double>(times.peers_ns), 1e-6 * static_cast<double>(times.checkpoint_ns));
  }
  if (transport.rank() == 0) {
    fmt::print("  rebalance   every {}, experts come from {}{}\n", counted(deck.experts.rebalance_steps, "step"),
               source == WeightSource::peers ? "other ranks" : "the checkpoint", why);
    std::fflush(stdout);
  }
  return source;
}

void set_over_ranks(Transport& transport, std::int64_t value, std::int64_t& max, std::int64_t& sum) {
  max = value;
  sum = value;
  transport.all_reduce_max({&max, 1});
  transport.all_reduce_sum({&sum, 1});
}

}  // namespace

std::vector<std::int64_t> JobContext::num_ranks_on_node() const {
  return ranks_on_same_node(rank_to_node);
}

ExitCode run_job(const Deck& deck, const JobOptions& options, const JobContext& job, Transport& transport) {
  const bool first_rank = transport.rank() == 0;
  const Clock::time_point load_begin = Clock::now();

  // 1. The checkpoint, the same on all ranks.
  std::optional<CheckpointReader> checkpoint;
  agree(transport, [&] { checkpoint.emplace(deck.model.checkpoint); });
  require_same(transport, "checkpoint", to_hex(checkpoint->digest()));

  // 2. Where experts sit, what every rank allocates, and how decode rows travel. The exchange first: what it takes of a
  // device's memory is not free for the rest.
  const std::unique_ptr<DeviceExchange> exchange = make_device_exchange(job.rows.way, transport, deck.run.timeout_s);
  const Placement placement = make_placement(deck, checkpoint->spec(), job, transport);
  const RoutingSettings routing = routing_of(deck, job);
  RunLimits limits = make_limits(deck, *checkpoint, placement, routing, job, transport);
  const std::string exchange_mode =
      agree_on_exchange(checkpoint->spec(), placement, routing, *exchange, limits.decoder);
  const RunIdentity identity = identity_of(deck, *checkpoint, placement, exchange_mode, job, transport);
  if (first_rank) {
    print_start_table({&identity, sharing_line(limits.sharing), limits.decode, limits.prefill,
                       prefixes_line(limits.scheduler), limits.memory_of_rank, limits.free_of_rank,
                       limits.decoder.kv_blocks * limits.decoder.block_tokens, limits.decoder.max_context},
                      stdout);
  }
  if (options.dry_run) {
    return ExitCode::done;
  }

  // 3. Input and output on rank 0, before the long part: what is wrong with them shows at once.
  Desk desk;
  from_rank_0(transport, [&] {
    desk = open_desk(deck, options.overwrite, *checkpoint, limits.decoder.max_context);
    return std::string();
  });

  // 4. Weights.
  transport.set_phase("loading");
  ReplicatedTensors replicated(*checkpoint, limits.decoder.max_context, limits.sharing.sharing, transport);
  std::optional<Decoder> decoder;
  agree(transport,
        [&] { decoder.emplace(*checkpoint, std::move(replicated), placement, routing, *exchange, limits.decoder); });
  from_rank_0(transport, [&] {
    open_output(desk, deck, identity);
    return std::string();
  });
  std::optional<TraceRecording> recording;
  if (!deck.trace.record.empty()) {
    agree(transport, [&] { recording.emplace(checkpoint->spec(), desk.trace_path, transport); });
  }
  std::optional<Rebalancer> rebalancer;
  if (deck.experts.rebalance_steps > 0) {
    rebalancer.emplace(deck.experts.rebalance_steps, placement_maker(checkpoint->spec(), job, placement),
                       weight_source(deck, *decoder, transport), *decoder, transport);
  }
  const double load_s = seconds_between(load_begin, Clock::now());

  // 5. Steps until everything is answered.
  Scheduler scheduler(limits.scheduler);
  const std::int64_t window = std::max<std::int64_t>(64, transport.size() * deck.batch.max_sequences_per_rank);
  const double heartbeat_s = std::min(1.0, deck.run.timeout_s / 4);
  RequestFeed feed(desk.reader.get(), desk.writer.get(), transport, window, heartbeat_s);
  if (first_rank) {
    feed.go_on_from(desk.folder->requests(), checkpoint->spec().vocab_size);
  }
  Sampler sampler(checkpoint->spec().vocab_size, limits.scheduler.end_tokens, [&]() -> const Tokenizer& {
    if (desk.tokenizer == nullptr) {
      desk.tokenizer = load_tokenizer(*checkpoint);
    }
    METRO_REQUIRE(desk.tokenizer != nullptr, "a request with stop strings was accepted without a tokenizer");
    return *desk.tokenizer;
  });
  StepLoop loop(*decoder, sampler, scheduler, feed, desk.writer.get(), rebalancer ? &*rebalancer : nullptr, transport,
                limits.decoder);
  std::optional<RunRecorder> recorder;
  std::optional<Progress> progress;
  std::optional<StateSaver> saver;
  if (first_rank) {
    recorder.emplace(placement, routing.decode, desk.metrics.get());
    progress.emplace(stderr, ::isatty(STDERR_FILENO) == 1);
    saver.emplace(*desk.folder, feed, scheduler, deck.run.checkpoint_s);
  }
  const bool finished = loop.run(recorder ? &*recorder : nullptr, progress ? &*progress : nullptr,
                                 saver ? &*saver : nullptr, recording ? &*recording : nullptr);
  agree(transport, [&] {
    if (recording) {
      recording->close();
    }
  });

  // 6. What came of it.
  RunTotals totals;
  totals.load_s = load_s;
  totals.num_rejected = feed.num_rejected();
  transport.all_reduce_max({&totals.num_rejected, 1});
  set_over_ranks(transport, checkpoint->bytes_read(), totals.bytes_read_max, totals.bytes_read_sum);
  set_over_ranks(transport, transport.bytes_sent(), totals.bytes_sent_max, totals.bytes_sent_sum);
  totals.prompt_of_rank = scheduler.prompt_tokens();
  if (first_rank) {
    totals.run_s = recorder->seconds_so_far();
    totals.num_lines = desk.reader->line_count().all;
    totals.num_own_lines = desk.reader->line_count().own;
    totals.num_repeated_ids = desk.reader->num_repeated_ids();
    desk.writer->flush();
    desk.metrics->finish(totals);
    if (finished) {
      desk.folder->end();
    }
    print_summary({&recorder->statistics(), totals, true, transport.size(), deck.output.directory, earlier_parts(desk),
                   finished, identity.shard},
                  stdout);
  }
  if (!finished) {
    return ExitCode::stopped;
  }
  std::int64_t num_rejected = totals.num_rejected + (first_rank ? desk.folder->num_errors() : 0);
  transport.all_reduce_max({&num_rejected, 1});
  return options.strict && num_rejected > 0 ? ExitCode::input : ExitCode::done;
}

}  // namespace metro
