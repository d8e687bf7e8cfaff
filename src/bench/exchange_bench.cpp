// The options of the benchmark, its tables and its JSON file.
#include "bench/exchange_bench.hpp"

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "bench/exchange_paper.hpp"
#include "bench/load_average.hpp"
#include "decoder/exchange_choice.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <utility>

namespace metro {

namespace {

using nlohmann::json;

void require(bool is_fine, const std::string& problem) {
  if (!is_fine) {
    throw Error(ExitCode::usage, "bench exchange: " + one_line(problem));
  }
}

void check(const ExchangeBenchOptions& options) {
  const auto within = [](const char* name, auto value, auto least, auto most) {
    require(value >= least && value <= most, fmt::format("{} {}: must be from {} to {}", name, value, least, most));
  };
  within("--hidden", options.hidden, 0, 1 << 20);
  within("--top-k", options.top_k, 0, 4096);
  within("--experts", options.num_experts, 0, 1 << 20);
  const ExchangeShape shape = exchange_shape_of(options);
  require(shape.top_k <= shape.num_experts,
          fmt::format("--top-k {}: there are {} experts", shape.top_k, shape.num_experts));
  for (const std::int64_t rows : options.batch_sizes) {
    within("--batch", rows, 1, 1 << 16);
  }
  for (const std::int64_t levels : options.levels) {
    within("--levels", levels, 1, 2);
  }
  within("--replication", options.replication, 1.0, 1024.0);
  within("--repetitions", options.repetitions, 7, 100000);
  within("--latency-us", options.latency_us, 0.0, 1e6);
  within("--bandwidth-gb", options.bandwidth_gb, 0.0, 1e6);
  within("--memory-gb", options.memory_gb, 1.0, 1e6);
}

// Of one mode with one batch, beside the limit bytes / bandwidth. On one rank nothing is sent and there is no limit.
struct Figures {
  double limit_us = 0.0, best = 0.0, median = 0.0;
};
Figures figures_of(const ExchangeTiming& timing, const ExchangeResult& result) {
  if (result.gb_per_s_max == 0.0) {
    return {};
  }
  const double limit_us = 1e-3 * static_cast<double>(timing.bytes_sent_max) / result.gb_per_s_max;
  const double limit_of_median_us = 1e-3 * static_cast<double>(timing.bytes_sent_max) / result.gb_per_s_median;
  return {limit_us, limit_us / timing.us_min, limit_of_median_us / timing.us_median};
}

std::string border_text(std::int64_t most_allgather_rows) {
  if (most_allgather_rows == unlimited_rows) {
    return "allgather is faster with every batch";
  }
  if (most_allgather_rows == 0) {
    return "ids_then_alltoall is faster with every batch";
  }
  return fmt::format("allgather is faster for up to {} rows of all ranks, ids_then_alltoall for more",
                     most_allgather_rows);
}

void print_measured(std::FILE* out, const ExchangeResult& result, std::int64_t num_ranks) {
  fmt::print(out, "\n{:>6}{:>8}{:>8}  {:<18}{:>12}{:>11}{:>11}{:>11}{:>7}{:>8}\n", "rows", "of all", "levels", "mode",
             "bytes", "us", "median", "limit us", "ratio", "median");
  for (const ExchangeBatch& batch : result.batches) {
    for (const auto mode : {ExchangeMode::allgather, ExchangeMode::ids_then_alltoall}) {
      const ExchangeTiming& timing = mode == ExchangeMode::allgather ? batch.allgather : batch.ids;
      const Figures figures = figures_of(timing, result);
      fmt::print(out, "{:>6}{:>8}{:>8}  {:<18}{:>12}{:>11.1f}{:>11.1f}{:>11.1f}{:>7.2f}{:>8.2f}\n", batch.rows_per_rank,
                 batch.rows_per_rank * num_ranks, batch.levels, name_of(mode), timing.bytes_sent_max, timing.us_min,
                 timing.us_median, figures.limit_us, figures.best, figures.median);
    }
  }
  if (num_ranks == 1) {
    fmt::print(out, "one rank sends nothing: there is no crossover\n");
    return;
  }
  fmt::print(out, "bandwidth of a rank, all sending to all: {:.3f} GB/s at best, {:.3f} median\n", result.gb_per_s_max,
             result.gb_per_s_median);
  for (const auto& [levels, most_rows] : result.crossovers) {
    fmt::print(out, "crossover measured, by medians, with {} {}: {}\n", levels, levels == 1 ? "level" : "levels",
               border_text(most_rows));
  }
}

void print_paper(std::FILE* out, const ExchangeBenchOptions& options) {
  fmt::print(
      out,
      "\non paper, assuming {} us for each collective; rows of all ranks\n"
      "crossover: rows from which ids_then_alltoall is no slower; free: rows for which an allgather takes at most "
      "{:.0f}%\nof reading the experts' weights; us: of a layer, with as many rows as at the crossover (none: "
      "with 256 a rank)\n",
      options.latency_us, 100.0 * free_share);
  fmt::print(out, "{:<15}{:>6}  {:<16}{:>6}{:>6}{:>11}{:>17}{:>11}{:>10}{:>10}\n", "link", "GB/s", "model", "ranks",
             "top-k", "crossover", "free", "allgather", "ids", "weights");
  for (const PaperRow& row : paper_table(options)) {
    const std::string crossover = std::isfinite(row.crossover) ? fmt::format("{:.0f}", row.num_rows) : "none";
    const std::string free_rows =
        row.free_rows.last == 0 ? "never" : fmt::format("{} to {}", row.free_rows.first, row.free_rows.last);
    fmt::print(out, "{:<15}{:>6.0f}  {:<16}{:>6}{:>6}{:>11}{:>17}{:>11.1f}{:>10.1f}{:>10.1f}\n", row.link.name,
               1e-9 * row.link.bytes_per_s, row.model, row.num_ranks, row.shape.top_k, crossover, free_rows,
               row.allgather_us, row.ids_us, row.weights_us);
  }
}

json json_of(const ExchangeTiming& timing, const ExchangeResult& result) {
  const Figures figures = figures_of(timing, result);
  return {{"bytes_sent_max", timing.bytes_sent_max}, {"us_min", timing.us_min},
          {"us_median", timing.us_median},           {"limit_us", figures.limit_us},
          {"ratio_of_best", figures.best},           {"ratio_of_medians", figures.median}};
}

json json_of(const PaperRow& row) {
  return {{"link", row.link.name},
          {"latency_us", 1e6 * row.link.latency_s},
          {"gb_per_s", 1e-9 * row.link.bytes_per_s},
          {"memory_gb_per_s", 1e-9 * row.link.memory_bytes_per_s},
          {"model", row.model},
          {"hidden", row.shape.hidden},
          {"top_k", row.shape.top_k},
          {"experts", row.shape.num_experts},
          {"ranks", row.num_ranks},
          {"crossover_rows", std::isfinite(row.crossover) ? json(row.crossover) : json(nullptr)},
          {"free_rows_first", row.free_rows.first},
          {"free_rows_last", row.free_rows.last},
          {"rows", row.num_rows},
          {"allgather_us", row.allgather_us},
          {"ids_us", row.ids_us},
          {"weights_us", row.weights_us}};
}

// border: null where one mode is always taken.
json document_of(const ExchangeBenchOptions& options, const ExchangeResult& result, std::int64_t num_ranks) {
  const ExchangeShape shape = exchange_shape_of(options);
  json batches = json::array();
  for (const ExchangeBatch& batch : result.batches) {
    batches.push_back({{"levels", batch.levels},
                       {"rows_per_rank", batch.rows_per_rank},
                       {"rows", batch.rows_per_rank * num_ranks},
                       {"allgather", json_of(batch.allgather, result)},
                       {"ids_then_alltoall", json_of(batch.ids, result)}});
  }
  json crossovers = json::array();
  for (const auto& [levels, most_rows] : result.crossovers) {
    crossovers.push_back({{"levels", levels}, {"crossover", border_text(most_rows)}});
  }
  json paper = json::array();
  for (const PaperRow& row : paper_table(options)) {
    paper.push_back(json_of(row));
  }
  return {{"benchmark", "exchange"},
          {"build", build_description()},
          {"ranks", num_ranks},
          {"hidden", shape.hidden},
          {"top_k", shape.top_k},
          {"experts", shape.num_experts},
          {"replication", options.replication},
          {"repetitions", options.repetitions},
          {"gb_per_s_max", result.gb_per_s_max},
          {"gb_per_s_median", result.gb_per_s_median},
          {"crossovers", std::move(crossovers)},
          {"batches", std::move(batches)},
          {"paper", std::move(paper)}};
}

}  // namespace

ExchangeShape exchange_shape_of(const ExchangeBenchOptions& options) {
  ExchangeShape shape = exchange_shape_of(model_shape(options.model, "bench exchange: --model"));
  shape.hidden = options.hidden > 0 ? options.hidden : shape.hidden;
  shape.top_k = options.top_k > 0 ? options.top_k : shape.top_k;
  shape.num_experts = options.num_experts > 0 ? options.num_experts : shape.num_experts;
  return shape;
}

void bench_exchange(const ExchangeBenchOptions& options, Transport& transport, std::FILE* out) {
  agree(transport, [&options] { check(options); });
  const auto load_before = load_average();
  if (transport.rank() == 0) {
    const ExchangeShape shape = exchange_shape_of(options);
    fmt::print(out, "{}\nload average {:.2f} {:.2f} {:.2f}; transport {}\n", build_description(), load_before[0],
               load_before[1], load_before[2], transport.name());
    fmt::print(out,
               "hidden {}, top-{} of {} experts, {} replicas per expert, {} ranks, {} repetitions in turn\n"
               "rows: of each rank, with random experts; bytes: of the rank that sends most; us: slowest rank, least "
               "and median\nlimit: bytes / bandwidth of a rank measured in the same run; ratio: limit / time\n",
               shape.hidden, shape.top_k, shape.num_experts, options.replication, transport.size(),
               options.repetitions);
    std::fflush(out);
  }
  const ExchangeResult result = time_exchanges(options, transport);
  from_rank_0(transport, [&] {
    print_measured(out, result, transport.size());
    print_paper(out, options);
    const auto load_after = load_average();
    fmt::print(out, "\nload average at the end {:.2f} {:.2f} {:.2f}\n", load_after[0], load_after[1], load_after[2]);
    if (!options.json_path.empty()) {
      json document = document_of(options, result, transport.size());
      document["load_average_before"] = load_before;
      document["load_average_after"] = load_after;
      write_file_atomically(options.json_path, document.dump(1) + "\n");
    }
    return std::string();
  });
}

}  // namespace metro
