#include "cli/replay_command.hpp"

#include "base/file.hpp"
#include "base/integers.hpp"
#include "cli/standard_output.hpp"
#include "replay/replay.hpp"
#include "replay/replay_report.hpp"
#include "trace/trace_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

namespace metro {

namespace {

[[noreturn]] void refuse(const char* option, const std::string& value, const std::string& allowed) {
  throw Error(ExitCode::usage, fmt::format("replay: {} = '{}': {}", option, value, allowed));
}

std::vector<RoutingPolicy> policies_of(const ReplayOptions& options) {
  if (options.policies.empty()) {
    return {routing_policies().begin(), routing_policies().end()};
  }
  std::vector<RoutingPolicy> policies;
  for (const std::string& name : options.policies) {
    const std::optional<RoutingPolicy> policy = routing_policy_named(name);
    if (!policy) {
      std::vector<std::string_view> names;
      for (const RoutingPolicy known : routing_policies()) {
        names.push_back(name_of(known));
      }
      refuse("--policies", name, fmt::format("must be among {}", fmt::join(names, ", ")));
    }
    policies.push_back(*policy);
  }
  return policies;
}

std::optional<std::int32_t> layer_number(std::string_view text) {
  std::int32_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = failure == std::errc() && end == text.data() + text.size() && number >= 0;
  return whole ? std::optional(number) : std::nullopt;
}

// Indices into the layers of the trace, ascending.
std::vector<std::int64_t> layers_of(const ReplayOptions& options, const TraceModel& model) {
  std::set<std::int64_t> chosen;
  for (const std::string& text : options.layers) {
    const std::size_t dash = text.find('-');
    const auto first = layer_number(std::string_view(text).substr(0, dash));
    const auto last = dash == std::string::npos ? first : layer_number(std::string_view(text).substr(dash + 1));
    if (!first || !last || *first > *last) {
      refuse("--layers", text, "must be a layer or a range of layers such as 3-7");
    }
    const auto begin = std::lower_bound(model.layers.begin(), model.layers.end(), *first);
    const auto end = std::upper_bound(model.layers.begin(), model.layers.end(), *last);
    if (begin == end) {
      refuse("--layers", text, fmt::format("the trace has the layers {}", fmt::join(model.layers, ", ")));
    }
    for (auto layer = begin; layer != end; ++layer) {
      chosen.insert(layer - model.layers.begin());
    }
  }
  if (options.layers.empty()) {
    for (std::int64_t layer = 0; layer < model.num_layers(); ++layer) {
      chosen.insert(layer);
    }
  }
  return {chosen.begin(), chosen.end()};
}

TraceRequests requests_named(const char* option, const std::string& name) {
  const std::optional<TraceRequests> requests = trace_requests_named(name);
  if (!requests) {
    refuse(option, name, "must be even, odd or all");
  }
  return *requests;
}

ReplaySettings settings_of(const ReplayOptions& options, const RoutingTrace& trace) {
  ReplaySettings settings;
  settings.placements = options.placements;
  settings.policies = policies_of(options);
  settings.batch_sizes = options.batch_sizes;
  settings.rank_counts = options.rank_counts;
  settings.replications = options.replications;
  settings.layers = layers_of(options, trace.model);
  settings.moves_per_slot = options.moves_per_slot;
  settings.num_draws = options.num_draws;
  settings.stride = options.stride;
  settings.seed = options.seed;
  settings.rows = usual_rows(trace);
  if (!options.rows.empty()) {
    const std::optional<TraceRows> rows = trace_rows_named(options.rows);
    if (!rows) {
      refuse("--rows", options.rows, "must be decode, prefill or all");
    }
    settings.rows = *rows;
  }
  settings.plan_on = requests_named("--plan-on", options.plan_on);
  settings.judge_on = requests_named("--judge-on", options.judge_on);
  return settings;
}

// A text file that is written line by line, every write checked.
class LineOutput {
 public:
  explicit LineOutput(const std::string& path) : path_(path), file_(::fdopen(make_new_file(path), "w"), std::fclose) {
    if (!file_) {
      throw Error(ExitCode::usage, fmt::format("cannot create {}: {}", path, std::strerror(errno)));
    }
  }
  void write(const std::string& line) {
    check(std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() && std::fputc('\n', file_.get()) != EOF);
  }
  void close() { check(std::fclose(file_.release()) == 0); }

 private:
  void check(bool done) const {
    if (!done) {
      throw Error(ExitCode::machine, fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
    }
  }

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

std::string headline(const ReplayOptions& options, const RoutingTrace& trace, const ReplaySettings& settings) {
  return fmt::format(
      "{}: {} ({} experts, top {}, {} layers, {} tokens)\n"
      "batches of {} rows from {} requests, placements from {} requests; {} draws every {} steps, {} layers, seed {}\n",
      options.trace_path, one_line(trace.model.origin), trace.model.num_experts, trace.model.top_k,
      trace.model.num_layers(), trace.num_tokens(), name_of(settings.rows), name_of(settings.judge_on),
      name_of(settings.plan_on), settings.num_draws, settings.stride, settings.layers.size(), settings.seed);
}

}  // namespace

ExitCode replay_command(const ReplayOptions& options) {
  std::set<std::string> files{
      std::filesystem::weakly_canonical(std::filesystem::absolute(options.trace_path)).string()};
  for (const std::string* path : {&options.json_path, &options.csv_path, &options.dump_path}) {
    if (!path->empty()) {
      require_room_for_output(*path, options.overwrite);
      if (!files.insert(std::filesystem::weakly_canonical(std::filesystem::absolute(*path)).string()).second) {
        refuse("output", *path, "it is the trace or another output too");
      }
    }
  }
  const RoutingTrace trace = read_trace(options.trace_path);
  const ReplaySettings settings = settings_of(options, trace);

  std::optional<LineOutput> dump;
  ReplayObserver observe;
  if (!options.dump_path.empty()) {
    dump.emplace(options.dump_path);
    observe = [&](const ReplayedBatch& routed) { dump->write(replayed_batch_json(trace, routed)); };
  }
  const std::vector<ReplayResult> results = replay(trace, settings, observe);

  if (dump) {
    dump->close();
  }
  if (!options.json_path.empty()) {
    write_file_atomically(options.json_path, replay_json(trace, options.trace_path, settings, results));
  }
  if (!options.csv_path.empty()) {
    write_file_atomically(options.csv_path, replay_csv(trace, settings, results));
  }
  print_to_stdout(headline(options, trace, settings) + replay_table(results));
  return ExitCode::done;
}

}  // namespace metro
