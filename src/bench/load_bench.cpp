// The options of the benchmark, its table and its JSON file.
#include "bench/load_bench.hpp"

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "bench/load_average.hpp"
#include "bench/read_speed.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace metro {

namespace {

using nlohmann::json;

void require(bool is_fine, const std::string& problem) {
  if (!is_fine) {
    throw Error(ExitCode::usage, "bench load: " + one_line(problem));
  }
}

void check(const LoadBenchOptions& options) {
  require(options.repetitions >= 7 && options.repetitions <= 100000,
          fmt::format("--repetitions {}: must be from 7 to 100000", options.repetitions));
  for (const std::int64_t threads : options.threads) {
    require(threads >= 1 && threads <= 1024, fmt::format("--threads {}: must be from 1 to 1024", threads));
  }
}

// GB/s (10^9 bytes) of all ranks together; share: of the plain read.
struct Summary {
  double plain_best = 0.0, plain_median = 0.0;
  double load_best = 0.0, load_median = 0.0;
  double share_of_best() const { return load_best / plain_best; }
  double share_of_medians() const { return load_median / plain_median; }
};

Summary summary_of(const LoadTimes& times, const LoadResult& result) {
  std::vector<double> plain, load;
  for (const LoadSample& sample : result.samples) {
    plain.push_back(sample.plain_s);
    load.push_back(sample.load_s);
  }
  const double gigabytes = 1e-9 * static_cast<double>(times.bytes_sum);
  return {gigabytes / least_of(plain), gigabytes / median_of(plain), gigabytes / least_of(load),
          gigabytes / median_of(load)};
}

void print(const LoadTimes& times, std::FILE* out) {
  fmt::print(out, "{:>7}{:>12}{:>9}{:>12}{:>9}{:>8}{:>9}\n", "threads", "plain GB/s", "median", "load GB/s", "median",
             "share", "median");
  for (const LoadResult& result : times.results) {
    const Summary s = summary_of(times, result);
    fmt::print(out, "{:>7}{:>12.2f}{:>9.2f}{:>12.2f}{:>9.2f}{:>8.2f}{:>9.2f}\n", result.num_threads, s.plain_best,
               s.plain_median, s.load_best, s.load_median, s.share_of_best(), s.share_of_medians());
  }
  fmt::print(out, "first load, into memory that nobody has touched: {:.3f} s, {:.2f} GB/s on {} thread{}\n",
             times.first_load_s, 1e-9 * static_cast<double>(times.bytes_sum) / times.first_load_s,
             times.results.front().num_threads, times.results.front().num_threads == 1 ? "" : "s");
}

json json_of(const LoadTimes& times, const LoadResult& result) {
  const Summary s = summary_of(times, result);
  json samples = json::array();
  for (const LoadSample& sample : result.samples) {
    samples.push_back({{"plain_s", sample.plain_s}, {"load_s", sample.load_s}});
  }
  return {{"threads", result.num_threads},
          {"plain_gb_per_s_max", s.plain_best},
          {"plain_gb_per_s_median", s.plain_median},
          {"load_gb_per_s_max", s.load_best},
          {"load_gb_per_s_median", s.load_median},
          {"share_of_best", s.share_of_best()},
          {"share_of_medians", s.share_of_medians()},
          {"samples", std::move(samples)}};
}

}  // namespace

void bench_load(const LoadBenchOptions& options, Transport& transport, std::FILE* out) {
  agree(transport, [&options] { check(options); });
  const auto load_before = load_average();
  const LoadTimes times = time_loading(options, transport);
  from_rank_0(transport, [&] {
    const auto load_after = load_average();
    fmt::print(out, "{}\nload average {:.2f} {:.2f} {:.2f}, at the end {:.2f} {:.2f} {:.2f}\n", build_description(),
               load_before[0], load_before[1], load_before[2], load_after[0], load_after[1], load_after[2]);
    fmt::print(out,
               "{}: {} bytes by {} rank{} (at most {} by one), {} repetitions in turn, page cache warm, memory "
               "touched\nGB/s: of all ranks, by the slowest; plain: pread alone; share: best load / best plain read, "
               "median / median\n",
               options.checkpoint_path, times.bytes_sum, transport.size(), transport.size() == 1 ? "" : "s",
               times.bytes_max, options.repetitions);
    print(times, out);
    if (!options.json_path.empty()) {
      json settings = json::array();
      for (const LoadResult& result : times.results) {
        settings.push_back(json_of(times, result));
      }
      const json document = {{"benchmark", "load"},
                             {"build", build_description()},
                             {"load_average_before", load_before},
                             {"load_average_after", load_after},
                             {"checkpoint", options.checkpoint_path},
                             {"ranks", transport.size()},
                             {"bytes_sum", times.bytes_sum},
                             {"bytes_max", times.bytes_max},
                             {"repetitions", options.repetitions},
                             {"first_load_s", times.first_load_s},
                             {"settings", std::move(settings)}};
      write_file_atomically(options.json_path, document.dump(1) + "\n");
    }
    return std::string();
  });
}

}  // namespace metro
