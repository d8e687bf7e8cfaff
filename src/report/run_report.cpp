#include "report/run_report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace metro {

namespace {

constexpr std::size_t max_ranks_listed = 16;

std::string count(std::int64_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string milliseconds(const std::vector<double>& seconds) {
  return fmt::format("median {:.1f} ms, p95 {:.1f} ms, p99 {:.1f} ms", 1e3 * quantile(seconds, 0.5),
                     1e3 * quantile(seconds, 0.95), 1e3 * quantile(seconds, 0.99));
}

double per_second(std::int64_t n, double seconds) {
  return seconds > 0.0 ? static_cast<double>(n) / seconds : 0.0;
}

std::string replicas_of(const Placement& placement) {
  const auto filled = placement.num_layers == 0
                          ? 0
                          : std::count_if(placement.slot_to_expert.begin(), placement.slot_to_expert.end(),
                                          [](std::int32_t expert) { return expert != Placement::empty_slot; }) /
                                placement.num_layers;
  return fmt::format("{} per rank, {} slots for {} experts ({:.2f}x)", count(placement.slots_per_rank, "slot"), filled,
                     placement.num_experts, static_cast<double>(filled) / static_cast<double>(placement.num_experts));
}

void print_rank(const StartTable& table, std::size_t rank, std::FILE* out) {
  const MemoryPlan& plan = table.memory_of_rank[rank];
  fmt::print(out, "    {:>4}  {:<20} {:>4}  {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", rank,
             table.rank_to_host[rank], table.rank_to_node[rank], human_bytes(plan.dense), human_bytes(plan.experts),
             human_bytes(plan.kv), human_bytes(plan.buffers), human_bytes(plan.total()),
             human_bytes(table.free_of_rank[rank]));
}

}  // namespace

std::string human_bytes(std::int64_t num_bytes) {
  constexpr std::array<const char*, 5> units{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (num_bytes < 1024) {
    return fmt::format("{} B", num_bytes);
  }
  double value = static_cast<double>(num_bytes) / 1024.0;
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < units.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

void print_start_table(const StartTable& table, std::FILE* out) {
  const ModelSpec& spec = *table.spec;
  fmt::print(out, "{}\n", table.version);
  fmt::print(out, "  software    {}\n", table.software);
  fmt::print(out, "  checkpoint  {} (digest {})\n", table.checkpoint, table.checkpoint_digest);
  fmt::print(
      out,
      "  model       {}: {} ({} MoE), hidden {}, heads {}:{} of {}, {} experts of width {}, top-{}, vocabulary {}\n",
      spec.family, count(spec.num_layers, "layer"), spec.num_moe_layers(), spec.hidden_size, spec.attention.num_heads,
      spec.attention.num_kv_heads, spec.attention.head_dim, spec.moe.num_experts, spec.moe.intermediate_size,
      spec.moe.top_k, spec.vocab_size);
  fmt::print(out, "  job         {} on {}, transport {}\n",
             count(static_cast<std::int64_t>(table.rank_to_host.size()), "rank"),
             count(1 + *std::max_element(table.rank_to_node.begin(), table.rank_to_node.end()), "node"),
             table.transport);
  fmt::print(out, "  placement   {}: {}\n", table.placement_name, replicas_of(*table.placement));
  fmt::print(out, "  routing     decode {}, prefill {}\n", table.decode_policy, table.prefill_policy);
  fmt::print(out, "  context     {} positions per sequence, {} in the KV cache of a rank\n", table.max_context,
             table.kv_tokens_per_rank);
  fmt::print(out, "    {:>4}  {:<20} {:>4}  {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "rank", "host", "node",
             "dense", "experts", "KV cache", "buffers", "total", "may take");
  const std::size_t num_listed = std::min(table.memory_of_rank.size(), max_ranks_listed);
  for (std::size_t rank = 0; rank < num_listed; ++rank) {
    print_rank(table, rank, out);
  }
  if (num_listed < table.memory_of_rank.size()) {
    const auto largest = std::max_element(table.memory_of_rank.begin(), table.memory_of_rank.end(),
                                          [](const auto& a, const auto& b) { return a.total() < b.total(); });
    fmt::print(out, "    ... {} more; the largest:\n", table.memory_of_rank.size() - num_listed);
    print_rank(table, static_cast<std::size_t>(largest - table.memory_of_rank.begin()), out);
  }
  std::fflush(out);
}

Progress::Progress(std::FILE* out)
    : out_(out), terminal_(::isatty(::fileno(out)) == 1), interval_s_(terminal_ ? 0.2 : 10.0) {}

void Progress::update(const RunStatistics& statistics, std::int64_t num_running, std::int64_t requests_read,
                      bool input_ended) {
  const double now_s = statistics.seconds_so_far();
  if (now_s - last_s_ < interval_s_) {
    return;
  }
  last_s_ = now_s;
  const std::int64_t done = statistics.num_stop + statistics.num_length;
  std::string left;
  if (input_ended && done > 0) {
    left =
        fmt::format(", {:.0f} s left", now_s * static_cast<double>(requests_read - done) / static_cast<double>(done));
  }
  fmt::print(out_, "{}{} of {}{} requests done, {} running, {:.0f} generated tokens/s{}{}",
             terminal_ ? "\r\033[K" : "  ", done, requests_read, input_ended ? "" : "+", num_running,
             per_second(statistics.generated_tokens, now_s), left, terminal_ ? "" : "\n");
  std::fflush(out_);
  shown_ = true;
}

void Progress::finish() {
  if (terminal_ && shown_) {
    fmt::print(out_, "\r\033[K");
    std::fflush(out_);
  }
}

void print_summary(const Summary& summary, std::FILE* out) {
  const RunStatistics& run = *summary.statistics;
  const ActivationStatistics& activation = *summary.activation;
  fmt::print(out, "done\n");
  fmt::print(out, "  requests    {} completed ({} stop, {} length), {} rejected\n", run.num_stop + run.num_length,
             run.num_stop, run.num_length, summary.num_rejected);
  fmt::print(out, "  tokens      {} prompt, {} generated, {:.0f} generated tokens/s\n", run.prompt_tokens,
             run.generated_tokens, per_second(run.generated_tokens, run.seconds()));
  fmt::print(out, "  time        {:.2f} s after {:.2f} s of loading: prefill {:.2f} s in {}, decode {:.2f} s in {}\n",
             run.seconds(), summary.load_s, run.prefill_s, count(run.prefill_steps, "step"), run.decode_s,
             count(run.decode_steps, "step"));
  fmt::print(out, "  first token {}, from the request's first prefill step\n", milliseconds(run.first_token_s));
  fmt::print(out, "  per token   {}\n", milliseconds(run.per_token_s));
  if (activation.num_samples() > 0) {
    fmt::print(
        out,
        "  activated   experts per rank, decode step and layer: busiest rank {:.2f} (optimum {:.2f}, most {}), mean of "
        "ranks {:.2f}; {:.1f} distinct experts per batch\n",
        activation.mean_lambda(), activation.mean_optimum(), activation.max_lambda(), activation.mean_per_rank(),
        activation.mean_active());
  }
  fmt::print(out, "  bytes       {} read from the checkpoint (largest rank {}), {} exchanged (largest rank {})\n",
             human_bytes(summary.bytes_read_sum), human_bytes(summary.bytes_read_max),
             human_bytes(summary.bytes_sent_sum), human_bytes(summary.bytes_sent_max));
  fmt::print(out, "  output      {}/completions.jsonl{}\n", summary.output_directory,
             summary.num_rejected > 0 ? ", errors.jsonl" : "");
  std::fflush(out);
}

}  // namespace metro
