#include "report/metrics_writer.hpp"

#include "base/error.hpp"
#include "hdf5/hdf5_table_writer.hpp"

#include <fmt/format.h>

#include <limits>

namespace metro {

namespace {

// One row per step.
struct StepColumns {
  Hdf5Column<std::uint8_t> kind;
  Hdf5Column<std::int32_t> rows, sequences;
  Hdf5Column<double> begin_s;
  Hdf5Column<float> seconds;
  Hdf5Column<float> phase_max_s, phase_mean_s;  // [num_phases]
  Hdf5Column<std::int64_t> bytes_sent;

  explicit StepColumns(Hdf5TableWriter& file)
      : kind(file, "/steps/kind"),
        rows(file, "/steps/rows"),
        sequences(file, "/steps/sequences"),
        begin_s(file, "/steps/begin_s"),
        seconds(file, "/steps/seconds"),
        phase_max_s(file, "/steps/phase_max_s", num_phases),
        phase_mean_s(file, "/steps/phase_mean_s", num_phases),
        bytes_sent(file, "/steps/bytes_sent") {}

  void push(const StepMetrics& step) {
    kind.push(static_cast<std::uint8_t>(step.kind));
    rows.push(step.rows);
    sequences.push(step.sequences);
    begin_s.push(step.begin_s);
    seconds.push(step.seconds);
    for (std::size_t phase = 0; phase < num_phases; ++phase) {
      phase_max_s.push(step.phases.max[phase]);
      phase_mean_s.push(step.phases.mean[phase]);
    }
    bytes_sent.push(step.bytes_sent);
  }

  void flush() {
    kind.flush();
    rows.flush();
    sequences.flush();
    begin_s.flush();
    seconds.flush();
    phase_max_s.flush();
    phase_mean_s.flush();
    bytes_sent.flush();
  }
};

// One row per decode step, one value per MoE layer.
struct DecodeColumns {
  Hdf5Column<std::int64_t> step;  // row of the step columns
  Hdf5Column<std::int32_t> active, lambda, activated, optimum;

  DecodeColumns(Hdf5TableWriter& file, std::int64_t num_layers)
      : step(file, "/decode/step"),
        active(file, "/decode/active", num_layers),
        lambda(file, "/decode/lambda", num_layers),
        activated(file, "/decode/activated", num_layers),
        optimum(file, "/decode/optimum", num_layers) {}

  void push(std::int64_t step_idx, const std::vector<LayerActivation>& layers) {
    step.push(step_idx);
    for (const LayerActivation& layer : layers) {
      active.push(layer.active);
      lambda.push(layer.lambda);
      activated.push(layer.activated);
      optimum.push(layer.optimum);
    }
  }

  void flush() {
    step.flush();
    active.flush();
    lambda.flush();
    activated.flush();
    optimum.flush();
  }
};

// One row per finished request.
struct RequestColumns {
  Hdf5Column<std::int64_t> id;
  Hdf5Column<std::string> custom_id;
  Hdf5Column<std::int32_t> prompt_tokens, generated_tokens;
  Hdf5Column<std::uint8_t> finish_reason;
  Hdf5Column<double> first_step_s, first_token_s, last_token_s;
  Hdf5Column<double> arrival_s;  // no number: none

  explicit RequestColumns(Hdf5TableWriter& file)
      : id(file, "/requests/id"),
        custom_id(file, "/requests/custom_id"),
        prompt_tokens(file, "/requests/prompt_tokens"),
        generated_tokens(file, "/requests/generated_tokens"),
        finish_reason(file, "/requests/finish_reason"),
        first_step_s(file, "/requests/first_step_s"),
        first_token_s(file, "/requests/first_token_s"),
        last_token_s(file, "/requests/last_token_s"),
        arrival_s(file, "/requests/arrival_s") {}

  void push(const RequestMetrics& request) {
    id.push(request.id);
    custom_id.push(request.custom_id);
    prompt_tokens.push(request.prompt_tokens);
    generated_tokens.push(request.generated_tokens);
    finish_reason.push(static_cast<std::uint8_t>(request.finish_reason));
    first_step_s.push(request.first_step_s);
    first_token_s.push(request.first_token_s);
    last_token_s.push(request.last_token_s);
    arrival_s.push(request.arrival_s.value_or(std::numeric_limits<double>::quiet_NaN()));
  }

  void flush() {
    id.flush();
    custom_id.flush();
    prompt_tokens.flush();
    generated_tokens.flush();
    finish_reason.flush();
    first_step_s.flush();
    first_token_s.flush();
    last_token_s.flush();
    arrival_s.flush();
  }
};

// One row per change of placement.
struct RebalanceColumns {
  Hdf5Column<std::int64_t> step;
  Hdf5Column<double> begin_s, seconds;
  Hdf5Column<std::int64_t> slots_moved, experts_fetched, bytes_sent, bytes_read;
  Hdf5Column<double> balance_before, balance_after;
  Hdf5Column<std::int32_t> slot_to_expert;  // [num_moe_layers * num_slots], one row to a chunk

  RebalanceColumns(Hdf5TableWriter& file, std::int64_t placement_size)
      : step(file, "/rebalance/step"),
        begin_s(file, "/rebalance/begin_s"),
        seconds(file, "/rebalance/seconds"),
        slots_moved(file, "/rebalance/slots_moved"),
        experts_fetched(file, "/rebalance/experts_fetched"),
        bytes_sent(file, "/rebalance/bytes_sent"),
        bytes_read(file, "/rebalance/bytes_read"),
        balance_before(file, "/rebalance/balance_before"),
        balance_after(file, "/rebalance/balance_after"),
        slot_to_expert(file, "/rebalance/slot_to_expert", placement_size, 1) {}

  void push(const RebalanceMetrics& rebalance) {
    step.push(rebalance.step);
    begin_s.push(rebalance.begin_s);
    seconds.push(rebalance.seconds);
    slots_moved.push(rebalance.slots_moved);
    experts_fetched.push(rebalance.experts_fetched);
    bytes_sent.push(rebalance.bytes_sent);
    bytes_read.push(rebalance.bytes_read);
    balance_before.push(rebalance.balance_before);
    balance_after.push(rebalance.balance_after);
    for (const std::int32_t expert : rebalance.slot_to_expert) {
      slot_to_expert.push(expert);
    }
  }

  void flush() {
    step.flush();
    begin_s.flush();
    seconds.flush();
    slots_moved.flush();
    experts_fetched.flush();
    bytes_sent.flush();
    bytes_read.flush();
    balance_before.flush();
    balance_after.flush();
    slot_to_expert.flush();
  }
};

void write_model(Hdf5TableWriter& file, const ModelSpec& spec) {
  file.attribute("family", spec.family);
  file.attribute("num_layers", spec.num_layers);
  file.attribute("hidden_size", spec.hidden_size);
  file.attribute("vocab_size", spec.vocab_size);
  file.attribute("num_heads", spec.attention.num_heads);
  file.attribute("num_kv_heads", spec.attention.num_kv_heads);
  file.attribute("head_dim", spec.attention.head_dim);
  file.attribute("num_experts", spec.moe.num_experts);
  file.attribute("expert_width", spec.moe.intermediate_size);
  file.attribute("top_k", spec.moe.top_k);
  std::vector<std::int32_t> moe_layers;
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (spec.layers[layer] == LayerKind::moe) {
      moe_layers.push_back(static_cast<std::int32_t>(layer));
    }
  }
  file.integers("/moe_layers", {std::ssize(moe_layers)}, moe_layers);
}

void write_identity(Hdf5TableWriter& file, const RunIdentity& identity) {
  file.attribute("format", std::string(metrics_format_name));
  file.attribute("version", metrics_format_version);
  file.attribute("build", identity.build);
  file.attribute("software", identity.software);
  file.attribute("started", identity.started);
  file.attribute("checkpoint", identity.checkpoint);
  file.attribute("checkpoint_digest", identity.checkpoint_digest);
  file.attribute("transport", identity.transport);
  file.attribute("decode_policy", identity.decode_policy);
  file.attribute("prefill_policy", identity.prefill_policy);
  file.attribute("decode_exchange", identity.decode_exchange);
  file.attribute("shard", identity.shard);
  file.attribute("placement", identity.placement_name);
  write_model(file, identity.spec);
  file.text("/deck", identity.deck);
  const Placement& placement = identity.placement;
  file.integers("/slot_to_expert", {placement.num_layers, placement.num_ranks, placement.slots_per_rank},
                placement.slot_to_expert);
  file.texts("/rank_to_host", identity.rank_to_host);
  const std::vector<std::int32_t> nodes(identity.rank_to_node.begin(), identity.rank_to_node.end());
  file.integers("/rank_to_node", {std::ssize(nodes)}, nodes);
  file.attribute("threads_per_rank", identity.threads_per_rank);
  if (!identity.rank_to_binding.empty()) {
    std::vector<std::string> cpus;
    std::vector<std::string> cores;
    std::vector<std::string> devices;
    for (const RankBinding& binding : identity.rank_to_binding) {
      cpus.push_back(binding.cpus);
      cores.push_back(binding.cores);
      devices.push_back(binding.device);
    }
    file.texts("/rank_to_cpus", cpus);
    file.texts("/rank_to_cores", cores);
    if (!devices.front().empty()) {
      file.texts("/rank_to_device", devices);
    }
  }
  std::vector<std::string> phases;
  for (std::size_t phase = 0; phase < num_phases; ++phase) {
    phases.emplace_back(name_of(static_cast<Phase>(phase)));
  }
  file.texts("/phases", phases);
  for (const char* group : {"/steps", "/decode", "/requests", "/rebalance"}) {
    file.make_group(group);
  }
}

void write_prompt_tokens(Hdf5TableWriter& file, const std::vector<PromptTokens>& prompt_of_rank) {
  Hdf5Column<std::int64_t> computed(file, "/prompt_tokens_computed");
  Hdf5Column<std::int64_t> shared(file, "/prompt_tokens_shared");
  for (const PromptTokens& rank : prompt_of_rank) {
    computed.push(rank.num_computed);
    shared.push(rank.num_shared);
  }
  computed.flush();
  shared.flush();
}

// Makes the groups of the columns too.
Hdf5TableWriter& with_identity(Hdf5TableWriter& file, const RunIdentity& identity) {
  write_identity(file, identity);
  return file;
}

}  // namespace

struct MetricsWriter::Impl {
  std::int64_t chunk_rows;
  std::int64_t num_layers;
  Hdf5TableWriter file;
  StepColumns steps;
  DecodeColumns decode;
  RequestColumns requests;
  RebalanceColumns rebalances;
  std::int64_t num_steps = 0, num_collected = 0;

  Impl(const std::string& path, const RunIdentity& identity, std::int64_t chunk)
      : chunk_rows(chunk),
        num_layers(identity.placement.num_layers),
        file(path, chunk),
        steps(with_identity(file, identity)),
        decode(file, num_layers),
        requests(file),
        rebalances(file, std::ssize(identity.placement.slot_to_expert)) {}

  // A step or a request was collected.
  void count() {
    if (++num_collected == chunk_rows) {
      flush();
    }
  }
  void flush() {
    steps.flush();
    decode.flush();
    requests.flush();
    file.flush();
    num_collected = 0;
  }
};

MetricsWriter::MetricsWriter(const std::string& path, const RunIdentity& identity, std::int64_t chunk_rows)
    : impl_(std::make_unique<Impl>(path, identity, chunk_rows)) {
  impl_->file.flush();
}
MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::add(const StepMetrics& step) {
  if (step.kind == StepKind::decode) {
    METRO_REQUIRE(std::ssize(step.layers) == impl_->num_layers, fmt::format("{} layers", step.layers.size()));
    impl_->decode.push(impl_->num_steps, step.layers);
  }
  impl_->steps.push(step);
  ++impl_->num_steps;
  impl_->count();
}

void MetricsWriter::add(const RequestMetrics& request) {
  impl_->requests.push(request);
  impl_->count();
}

void MetricsWriter::add(const RebalanceMetrics& rebalance) {
  impl_->rebalances.push(rebalance);
  impl_->rebalances.flush();
  impl_->file.flush();
}

void MetricsWriter::finish(const RunTotals& totals) {
  impl_->flush();
  Hdf5TableWriter& file = impl_->file;
  write_prompt_tokens(file, totals.prompt_of_rank);
  file.attribute("load_s", totals.load_s);
  file.attribute("run_s", totals.run_s);
  file.attribute("num_lines", totals.num_lines);
  file.attribute("num_own_lines", totals.num_own_lines);
  file.attribute("num_rejected", totals.num_rejected);
  file.attribute("num_repeated_ids", totals.num_repeated_ids);
  file.attribute("bytes_read_max", totals.bytes_read_max);
  file.attribute("bytes_read_sum", totals.bytes_read_sum);
  file.attribute("bytes_sent_max", totals.bytes_sent_max);
  file.attribute("bytes_sent_sum", totals.bytes_sent_sum);
  file.close();
}

}  // namespace metro
