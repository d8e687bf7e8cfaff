#include "report/metrics_reader.hpp"

#include "base/error.hpp"
#include "hdf5/hdf5_table_reader.hpp"
#include "report/metrics_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace metro {

namespace {

constexpr ExitCode on_failure = ExitCode::input;
constexpr std::int64_t rows_at_a_time = 1024;

[[noreturn]] void fail(const std::string& path, const std::string& complaint) {
  throw Error(on_failure, path + ": " + complaint);
}

ModelSpec read_model(const Hdf5TableReader& file, const std::string& path) {
  ModelSpec spec;
  spec.family = file.text_attribute("family");
  spec.num_layers = file.integer_attribute("num_layers");
  spec.hidden_size = file.integer_attribute("hidden_size");
  spec.vocab_size = file.integer_attribute("vocab_size");
  spec.attention.num_heads = file.integer_attribute("num_heads");
  spec.attention.num_kv_heads = file.integer_attribute("num_kv_heads");
  spec.attention.head_dim = file.integer_attribute("head_dim");
  spec.moe.num_experts = file.integer_attribute("num_experts");
  spec.moe.intermediate_size = file.integer_attribute("expert_width");
  spec.moe.top_k = file.integer_attribute("top_k");
  constexpr std::int64_t most_layers = 1 << 20;
  if (spec.num_layers < 0 || spec.num_layers > most_layers) {
    fail(path, fmt::format("attribute num_layers = {}: must be 0 to {}", spec.num_layers, most_layers));
  }
  spec.layers.assign(static_cast<std::size_t>(spec.num_layers), LayerKind::dense);
  for (const std::int32_t layer : file.integers("/moe_layers")) {
    if (layer < 0 || layer >= spec.num_layers) {
      fail(path, fmt::format("/moe_layers names layer {} of {}", layer, spec.num_layers));
    }
    spec.layers[static_cast<std::size_t>(layer)] = LayerKind::moe;
  }
  return spec;
}

Placement read_slots(const Hdf5TableReader& file, const std::string& path, const ModelSpec& spec) {
  const std::vector<std::int64_t> shape = file.shape("/slot_to_expert");
  if (shape.size() != 3 || shape[0] != spec.num_moe_layers() || shape[1] < 1) {
    fail(path, "/slot_to_expert must have the shape [MoE layers, ranks, slots of a rank]");
  }
  Placement placement;
  placement.num_layers = shape[0];
  placement.num_experts = spec.moe.num_experts;
  placement.num_ranks = shape[1];
  placement.slots_per_rank = shape[2];
  placement.slot_to_expert = file.integers("/slot_to_expert");
  return placement;
}

// Of a file that was written before these were: nothing is known.
void read_bindings(const Hdf5TableReader& file, RunIdentity& identity) {
  if (!file.has_dataset("/rank_to_cpus")) {
    return;
  }
  identity.threads_per_rank = file.integer_attribute("threads_per_rank");
  const std::int64_t num_ranks = identity.placement.num_ranks;
  const auto cpus = file.rows<std::string>("/rank_to_cpus", 0, num_ranks, 0);
  const auto cores = file.rows<std::string>("/rank_to_cores", 0, num_ranks, 0);
  for (std::size_t rank = 0; rank < cpus.size(); ++rank) {
    identity.rank_to_binding.push_back({cpus[rank], "", cores[rank], ""});
  }
  if (file.has_dataset("/rank_to_device")) {
    const auto devices = file.rows<std::string>("/rank_to_device", 0, num_ranks, 0);
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      identity.rank_to_binding[rank].device = devices[rank];
    }
  }
}

RunIdentity read_identity(const Hdf5TableReader& file, const std::string& path) {
  if (file.text_attribute("format") != metrics_format_name) {
    fail(path, fmt::format("attribute format must be {}", metrics_format_name));
  }
  const std::int64_t version = file.integer_attribute("version");
  if (version != metrics_format_version) {
    fail(path, fmt::format("has version {} of the format; this program reads {}", version, metrics_format_version));
  }
  RunIdentity identity;
  identity.build = file.text_attribute("build");
  identity.software = file.text_attribute("software");
  identity.started = file.text_attribute("started");
  identity.deck = file.text("/deck");
  identity.checkpoint = file.text_attribute("checkpoint");
  identity.checkpoint_digest = file.text_attribute("checkpoint_digest");
  identity.transport = file.text_attribute("transport");
  identity.decode_policy = file.text_attribute("decode_policy");
  identity.prefill_policy = file.text_attribute("prefill_policy");
  identity.decode_exchange = file.text_attribute("decode_exchange");
  identity.shard = file.text_attribute("shard");
  identity.placement_name = file.text_attribute("placement");
  identity.spec = read_model(file, path);
  identity.placement = read_slots(file, path, identity.spec);
  const std::int64_t num_ranks = identity.placement.num_ranks;
  identity.rank_to_host = file.rows<std::string>("/rank_to_host", 0, num_ranks, 0);
  const auto nodes = file.rows<std::int32_t>("/rank_to_node", 0, num_ranks, 0);
  identity.rank_to_node.assign(nodes.begin(), nodes.end());
  read_bindings(file, identity);
  if (file.num_rows("/phases") != static_cast<std::int64_t>(num_phases)) {
    fail(path, fmt::format("/phases must name {} phases", num_phases));
  }
  return identity;
}

}  // namespace

struct MetricsReader::Impl {
  std::string path;
  Hdf5TableReader file;
  RunIdentity identity;

  explicit Impl(const std::string& file_path)
      : path(file_path), file(file_path, on_failure), identity(read_identity(file, file_path)) {}

  std::int32_t in_range(std::int32_t value, std::int64_t least, std::int64_t most, const char* dataset) const {
    if (value < least || value > most) {
      fail(path, fmt::format("{} holds {}; allowed are {} to {}", dataset, value, least, most));
    }
    return value;
  }

  // Steps first .. first + num_rows - 1; their layers are left out.
  std::vector<StepMetrics> step_rows(std::int64_t first, std::int64_t num_rows) const {
    const auto kind = file.rows<std::uint8_t>("/steps/kind", first, num_rows, 0);
    const auto rows = file.rows<std::int32_t>("/steps/rows", first, num_rows, 0);
    const auto sequences = file.rows<std::int32_t>("/steps/sequences", first, num_rows, 0);
    const auto begin_s = file.rows<double>("/steps/begin_s", first, num_rows, 0);
    const auto seconds = file.rows<float>("/steps/seconds", first, num_rows, 0);
    const auto phase_max_s = file.rows<float>("/steps/phase_max_s", first, num_rows, num_phases);
    const auto phase_mean_s = file.rows<float>("/steps/phase_mean_s", first, num_rows, num_phases);
    const auto bytes_sent = file.rows<std::int64_t>("/steps/bytes_sent", first, num_rows, 0);
    std::vector<StepMetrics> steps(kind.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      StepMetrics& step = steps[i];
      step.kind = static_cast<StepKind>(in_range(kind[i], 0, 1, "/steps/kind"));
      step.rows = rows[i];
      step.sequences = sequences[i];
      step.begin_s = begin_s[i];
      step.seconds = seconds[i];
      std::copy_n(phase_max_s.begin() + static_cast<std::ptrdiff_t>(i * num_phases), num_phases,
                  step.phases.max.begin());
      std::copy_n(phase_mean_s.begin() + static_cast<std::ptrdiff_t>(i * num_phases), num_phases,
                  step.phases.mean.begin());
      step.bytes_sent = bytes_sent[i];
    }
    return steps;
  }

  // Fills in the layers of the decode steps among `steps`, whose first is step `first`; returns the next decode row.
  std::int64_t read_layers(std::int64_t first, std::int64_t decode_row, std::vector<StepMetrics>& steps) const {
    const auto width = identity.placement.num_layers;
    const auto num_rows = std::count_if(steps.begin(), steps.end(),
                                        [](const StepMetrics& step) { return step.kind == StepKind::decode; });
    const auto step_idx = file.rows<std::int64_t>("/decode/step", decode_row, num_rows, 0);
    const auto active = file.rows<std::int32_t>("/decode/active", decode_row, num_rows, width);
    const auto lambda = file.rows<std::int32_t>("/decode/lambda", decode_row, num_rows, width);
    const auto activated = file.rows<std::int32_t>("/decode/activated", decode_row, num_rows, width);
    const auto optimum = file.rows<std::int32_t>("/decode/optimum", decode_row, num_rows, width);
    const std::int64_t most = identity.spec.moe.num_experts;
    std::size_t row = 0;
    std::size_t value = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind != StepKind::decode) {
        continue;
      }
      if (step_idx[row++] != first + static_cast<std::int64_t>(i)) {
        fail(path, fmt::format("/decode/step does not name step {}, which is a decode step",
                               first + static_cast<std::int64_t>(i)));
      }
      for (std::int64_t layer = 0; layer < width; ++layer, ++value) {
        steps[i].layers.push_back({in_range(active[value], 0, most, "/decode/active"),
                                   in_range(lambda[value], 0, most, "/decode/lambda"), activated[value],
                                   in_range(optimum[value], 0, most, "/decode/optimum")});
      }
    }
    return decode_row + num_rows;
  }

  std::vector<RequestMetrics> request_rows(std::int64_t first, std::int64_t num_rows) const {
    const auto id = file.rows<std::int64_t>("/requests/id", first, num_rows, 0);
    const auto custom_id = file.rows<std::string>("/requests/custom_id", first, num_rows, 0);
    const auto prompt_tokens = file.rows<std::int32_t>("/requests/prompt_tokens", first, num_rows, 0);
    const auto generated_tokens = file.rows<std::int32_t>("/requests/generated_tokens", first, num_rows, 0);
    const auto finish_reason = file.rows<std::uint8_t>("/requests/finish_reason", first, num_rows, 0);
    const auto first_step_s = file.rows<double>("/requests/first_step_s", first, num_rows, 0);
    const auto first_token_s = file.rows<double>("/requests/first_token_s", first, num_rows, 0);
    const auto last_token_s = file.rows<double>("/requests/last_token_s", first, num_rows, 0);
    const auto arrival_s = file.rows<double>("/requests/arrival_s", first, num_rows, 0);
    std::vector<RequestMetrics> requests(id.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i] = {id[i],
                     custom_id[i],
                     prompt_tokens[i],
                     generated_tokens[i],
                     static_cast<FinishReason>(in_range(finish_reason[i], 1, 4, "/requests/finish_reason")),
                     first_step_s[i],
                     first_token_s[i],
                     last_token_s[i],
                     std::isnan(arrival_s[i]) ? std::nullopt : std::optional(arrival_s[i])};
    }
    return requests;
  }

  RebalanceMetrics rebalance_row(std::int64_t row) const {
    const auto integer = [&](const char* name) { return file.rows<std::int64_t>(name, row, 1, 0).front(); };
    const auto number = [&](const char* name) { return file.rows<double>(name, row, 1, 0).front(); };
    RebalanceMetrics rebalance;
    rebalance.step = integer("/rebalance/step");
    rebalance.begin_s = number("/rebalance/begin_s");
    rebalance.seconds = number("/rebalance/seconds");
    rebalance.slots_moved = integer("/rebalance/slots_moved");
    rebalance.experts_fetched = integer("/rebalance/experts_fetched");
    rebalance.bytes_sent = integer("/rebalance/bytes_sent");
    rebalance.bytes_read = integer("/rebalance/bytes_read");
    rebalance.balance_before = number("/rebalance/balance_before");
    rebalance.balance_after = number("/rebalance/balance_after");
    const std::int64_t size = std::ssize(identity.placement.slot_to_expert);
    rebalance.slot_to_expert = file.rows<std::int32_t>("/rebalance/slot_to_expert", row, 1, size);
    for (const std::int32_t expert : rebalance.slot_to_expert) {
      in_range(expert, Placement::empty_slot, identity.spec.moe.num_experts - 1, "/rebalance/slot_to_expert");
    }
    return rebalance;
  }
};

MetricsReader::MetricsReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
MetricsReader::~MetricsReader() = default;

const RunIdentity& MetricsReader::identity() const {
  return impl_->identity;
}

std::optional<RunTotals> MetricsReader::totals() const {
  const Hdf5TableReader& file = impl_->file;
  if (!file.has_attribute("run_s")) {
    return std::nullopt;
  }
  RunTotals totals;
  totals.load_s = file.number_attribute("load_s");
  totals.run_s = file.number_attribute("run_s");
  totals.num_lines = file.integer_attribute("num_lines");
  totals.num_own_lines = file.integer_attribute("num_own_lines");
  totals.num_rejected = file.integer_attribute("num_rejected");
  totals.num_repeated_ids = file.integer_attribute("num_repeated_ids");
  totals.bytes_read_max = file.integer_attribute("bytes_read_max");
  totals.bytes_read_sum = file.integer_attribute("bytes_read_sum");
  totals.bytes_sent_max = file.integer_attribute("bytes_sent_max");
  totals.bytes_sent_sum = file.integer_attribute("bytes_sent_sum");
  if (file.has_dataset("/prompt_tokens_computed")) {  // not in files of earlier programs
    const std::int64_t num_ranks = impl_->identity.placement.num_ranks;
    const auto computed = file.rows<std::int64_t>("/prompt_tokens_computed", 0, num_ranks, 0);
    const auto shared = file.rows<std::int64_t>("/prompt_tokens_shared", 0, num_ranks, 0);
    for (std::size_t rank = 0; rank < computed.size(); ++rank) {
      totals.prompt_of_rank.push_back({computed[rank], shared[rank]});
    }
  }
  return totals;
}

void MetricsReader::for_each_step(const std::function<void(const StepMetrics&)>& take) const {
  const std::int64_t num_steps = impl_->file.num_rows("/steps/kind");
  std::int64_t decode_row = 0;
  for (std::int64_t first = 0; first < num_steps; first += rows_at_a_time) {
    std::vector<StepMetrics> steps = impl_->step_rows(first, std::min(rows_at_a_time, num_steps - first));
    decode_row = impl_->read_layers(first, decode_row, steps);
    std::for_each(steps.begin(), steps.end(), take);
  }
}

void MetricsReader::for_each_request(const std::function<void(const RequestMetrics&)>& take) const {
  const std::int64_t num_requests = impl_->file.num_rows("/requests/id");
  for (std::int64_t first = 0; first < num_requests; first += rows_at_a_time) {
    const auto requests = impl_->request_rows(first, std::min(rows_at_a_time, num_requests - first));
    std::for_each(requests.begin(), requests.end(), take);
  }
}

void MetricsReader::for_each_rebalance(const std::function<void(const RebalanceMetrics&)>& take) const {
  const std::int64_t num_rebalances = impl_->file.num_rows("/rebalance/step");
  for (std::int64_t row = 0; row < num_rebalances; ++row) {
    take(impl_->rebalance_row(row));
  }
}

}  // namespace metro
