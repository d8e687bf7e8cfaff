#include "report/summary.hpp"

#include "report/metrics_reader.hpp"
#include "report/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

namespace metro {

namespace {

constexpr std::int64_t most_bars = 8;
constexpr double longest_bar = 40.0;

double ratio(double a, double b) {
  return b > 0.0 ? a / b : 0.0;
}

std::string milliseconds(const LatencyHistogram& seconds) {
  return fmt::format("median {:.1f} ms, p95 {:.1f} ms, p99 {:.1f} ms", 1e3 * seconds.quantile(0.5),
                     1e3 * seconds.quantile(0.95), 1e3 * seconds.quantile(0.99));
}

void print_latencies(const RunStatistics& run, std::FILE* out) {
  const bool with_arrivals = run.queue_s.num_values() > 0;
  if (with_arrivals) {
    fmt::print(out, "  queueing    {}, from the request's arrival to its first prefill step\n",
               milliseconds(run.queue_s));
  }
  fmt::print(out, "  first token {}, from the request's {}\n", milliseconds(run.first_token_s),
             with_arrivals ? "arrival" : "first prefill step");
  fmt::print(out, "  per token   {}\n", milliseconds(run.per_token_s));
}

void print_activation(const ActivationStatistics& activation, std::int64_t num_ranks, std::FILE* out) {
  if (activation.num_samples == 0) {
    return;
  }
  const auto samples = static_cast<double>(activation.num_samples);
  fmt::print(
      out,
      "  activated   experts per layer and decode step: busiest rank {:.2f}, optimum {:.2f} (reached in {:.1f}%), "
      "mean rank {:.2f}; {:.1f} distinct\n",
      activation.mean(activation.lambda_sum), activation.mean(activation.optimum_sum),
      100.0 * static_cast<double>(activation.num_optimal) / samples,
      activation.mean(activation.activated_sum) / static_cast<double>(num_ranks),
      activation.mean(activation.active_sum));
  const std::vector<HistogramBar> bars = histogram_bars(activation.lambda_to_count, most_bars);
  std::int64_t largest = 1;
  for (const HistogramBar& bar : bars) {
    largest = std::max(largest, bar.count);
  }
  const char* label = "lambda";
  for (const HistogramBar& bar : bars) {
    const std::string range =
        bar.first == bar.last ? fmt::format("{}", bar.first) : fmt::format("{}-{}", bar.first, bar.last);
    const double length = longest_bar * static_cast<double>(bar.count) / static_cast<double>(largest);
    fmt::print(out, "  {:<11} {:>7} {:<40} {:5.1f}%\n", label, range,
               std::string(static_cast<std::size_t>(length + 0.5), '#'),
               100.0 * static_cast<double>(bar.count) / samples);
    label = "";
  }
}

void print_rebalancing(const RunStatistics& run, double run_s, std::FILE* out) {
  if (run.num_rebalances == 0) {
    return;
  }
  const auto count = static_cast<double>(run.num_rebalances);
  fmt::print(out,
             "  rebalanced  {} in {:.3f} s ({:.1f}% of the run): {} changed, {} fetched with {} exchanged and {} read; "
             "balance {:.2f} -> {:.2f}\n",
             counted(run.num_rebalances, "time"), run.rebalance_s, 100.0 * ratio(run.rebalance_s, run_s),
             counted(run.slots_moved, "slot"), counted(run.experts_fetched, "expert"),
             human_bytes(run.rebalance_bytes_sent), human_bytes(run.rebalance_bytes_read),
             run.balance_before_sum / count, run.balance_after_sum / count);
}

void print_phases(const RunStatistics& run, std::FILE* out) {
  const double total_s = std::accumulate(run.phase_mean_s.begin(), run.phase_mean_s.end(), 0.0);
  fmt::print(out, "  {:<11} {:>12} {:>12} {:>7}\n", "time in", "slowest rank", "mean rank", "share");
  for (std::size_t i = 0; i < num_phases; ++i) {
    const auto phase = static_cast<Phase>(i);
    fmt::print(out, "  {:<11} {:>10.3f} s {:>10.3f} s {:>6.1f}%  {}\n", name_of(phase), run.phase_max_s[i],
               run.phase_mean_s[i], 100.0 * ratio(run.phase_mean_s[i], total_s), description_of(phase));
  }
}

void print_prompts(const RunTotals& totals, std::FILE* out) {
  if (totals.prompt_of_rank.empty()) {
    return;
  }
  PromptTokens sum;
  for (const PromptTokens& rank : totals.prompt_of_rank) {
    sum.num_computed += rank.num_computed;
    sum.num_shared += rank.num_shared;
  }
  const auto [least, most] = std::ranges::minmax(totals.prompt_of_rank, {}, &PromptTokens::num_computed);
  fmt::print(
      out, "  prompts     {} computed, {} to {} by a rank; {} taken from blocks of other requests ({:.1f}%)\n",
      counted(sum.num_computed, "token"), least.num_computed, most.num_computed, sum.num_shared,
      100.0 * ratio(static_cast<double>(sum.num_shared), static_cast<double>(sum.num_shared + sum.num_computed)));
}

const char* heading_of(const Summary& summary) {
  if (!summary.has_ended) {
    return "not ended; so far";
  }
  return summary.is_finished ? "done" : "stopped by a signal; the same command goes on";
}

}  // namespace

void print_summary(const Summary& summary, std::FILE* out) {
  const RunStatistics& run = *summary.statistics;
  const RunTotals& totals = summary.totals;
  const double run_s = summary.has_ended ? totals.run_s : run.end_s;
  fmt::print(out, "{}\n", heading_of(summary));
  fmt::print(out, "  requests    {} completed ({} stop, {} length), {} rejected{}\n", run.num_stop + run.num_length,
             run.num_stop, run.num_length,
             summary.has_ended ? fmt::format("{}", totals.num_rejected) : std::string("unknown number"),
             totals.num_repeated_ids > 0
                 ? fmt::format(", {} with the custom_id of an earlier line", totals.num_repeated_ids)
                 : "");
  if (summary.earlier.part > 1) {
    fmt::print(out, "  part {:<6} of the run: {} went on from their tokens; {} completed and {} rejected before\n",
               summary.earlier.part, counted(summary.earlier.num_continued, "request"), summary.earlier.num_completed,
               summary.earlier.num_rejected);
  }
  if (summary.has_ended && summary.shard != "0/1") {
    fmt::print(out, "  shard       {}: {} of {} in the input\n", summary.shard, totals.num_own_lines,
               counted(totals.num_lines, "line"));
  }
  fmt::print(out, "  tokens      {} prompt, {} generated, {:.0f} generated tokens/s\n", run.prompt_tokens,
             run.generated_tokens, ratio(static_cast<double>(run.generated_tokens), run_s));
  print_prompts(totals, out);
  fmt::print(out, "  time        {:.2f} s{}: prefill {:.2f} s in {}, decode {:.2f} s in {}\n", run_s,
             summary.has_ended ? fmt::format(" after {:.2f} s of loading", totals.load_s) : std::string(),
             run.prefill_s, counted(run.prefill_steps, "step"), run.decode_s, counted(run.decode_steps, "step"));
  print_latencies(run, out);
  print_activation(run.activation, summary.num_ranks, out);
  print_rebalancing(run, run_s, out);
  if (summary.has_ended) {
    fmt::print(out, "  bytes       {} exchanged (largest rank {}), {} read from the checkpoint (largest rank {})\n",
               human_bytes(totals.bytes_sent_sum), human_bytes(totals.bytes_sent_max),
               human_bytes(totals.bytes_read_sum), human_bytes(totals.bytes_read_max));
  } else {
    fmt::print(out, "  bytes       {} exchanged\n", human_bytes(run.bytes_sent));
  }
  print_phases(run, out);
  fmt::print(out, "  output      {}/completions.jsonl{}, metrics.h5\n", summary.output_directory,
             totals.num_rejected + summary.earlier.num_rejected > 0 ? ", errors.jsonl" : "");
  std::fflush(out);
}

void inspect_metrics(const std::string& path, std::FILE* out) {
  const MetricsReader reader(path);
  RunStatistics statistics;
  reader.for_each_step([&](const StepMetrics& step) { statistics.add(step); });
  reader.for_each_request([&](const RequestMetrics& request) { statistics.add(request); });
  reader.for_each_rebalance([&](const RebalanceMetrics& rebalance) { statistics.add(rebalance); });
  const auto totals = reader.totals();
  print_identity(reader.identity(), out);
  fmt::print(out, "  started     {}\n", reader.identity().started);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  print_summary({&statistics,
                 totals.value_or(RunTotals{}),
                 totals.has_value(),
                 reader.identity().placement.num_ranks,
                 folder.empty() ? "." : folder,
                 {},
                 true,
                 reader.identity().shard},
                out);
}

}  // namespace metro
