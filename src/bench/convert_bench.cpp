#include "bench/convert_bench.hpp"

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/integers.hpp"
#include "base/seconds_since.hpp"
#include "bench/load_average.hpp"
#include "bench/slice_folder.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/file_descriptor.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

namespace metro {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t mib = std::int64_t{1} << 20;

// Most memory that this process has held so far.
std::int64_t most_resident_bytes() {
  rusage usage{};
  METRO_REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

// Copies all files of a folder into one file, in pieces, and forces it to the disk as a conversion does.
void copy_plainly(const std::string& folder, const std::string& path) {
  std::vector<std::byte> piece(at(8 * mib));
  FileDescriptor copy = FileDescriptor::create(path);
  std::int64_t end = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const FileDescriptor file = FileDescriptor::open_to_read(entry.path(), ExitCode::machine);
    const std::int64_t size = file.size(ExitCode::machine);
    for (std::int64_t offset = 0; offset < size; offset += std::ssize(piece)) {
      const auto part = std::span(piece).first(at(std::min(std::ssize(piece), size - offset)));
      file.read_at(offset, part, ExitCode::machine);
      copy.write_at(end, part);
      end += std::ssize(part);
    }
  }
  copy.sync_and_close();
}

template <class F>
double seconds_of(const F& work) {
  const Clock::time_point start = Clock::now();
  work();
  return seconds_since(start);
}

}  // namespace

void bench_convert(const ConvertBenchOptions& options, std::FILE* out) {
  const ConvertedWeights weights = converted_weights_of(options.weights);
  const std::string config = slice_config(read_file(options.config_path, ExitCode::checkpoint), options.num_layers);
  slice_tensors(config);  // refuses what cannot be converted before anything is written
  make_new_folder(options.folder, "bench convert: --folder " + options.folder);
  const std::string slice = options.folder + "/hf";
  const std::string checkpoint = options.folder + "/model.h5";
  const std::string copy = options.folder + "/copy";
  std::int64_t num_bytes = 0;
  const double write_s = seconds_of([&] { num_bytes = write_slice(config, slice); });
  const double copy_s = seconds_of([&] { copy_plainly(slice, copy); });
  std::error_code error;
  std::filesystem::remove(copy, error);
  const std::int64_t held_before = most_resident_bytes();
  ConvertSummary summary;
  const double convert_s = seconds_of([&] { summary = convert_checkpoint(slice, checkpoint, false, {}, weights); });
  const std::int64_t held_after = most_resident_bytes();

  const auto load = load_average();
  const auto rate = [num_bytes](double seconds) { return 1e-9 * static_cast<double>(num_bytes) / seconds; };
  fmt::print(out, "{}\nload average {:.2f} {:.2f} {:.2f}\n{}: {} layer(s), {} bytes of tensors, checkpoint of {}\n",
             build_description(), load[0], load[1], load[2], options.config_path, options.num_layers, num_bytes,
             summary.num_bytes);
  fmt::print(out, "{:<22}{:>10}{:>10}\n", "", "seconds", "GB/s");
  for (const auto& [what, seconds] : {std::pair("random slice written", write_s), std::pair("plain copy", copy_s),
                                      std::pair("converted", convert_s)}) {
    fmt::print(out, "{:<22}{:>10.2f}{:>10.2f}\n", what, seconds, rate(seconds));
  }
  fmt::print(out,
             "converted at {:.2f} of the speed of the copy; most memory held {} MiB, {} MiB of it by the conversion\n"
             "both stay: {}, {}\n",
             copy_s / convert_s, held_after / mib, (held_after - held_before) / mib, slice, checkpoint);
}

}  // namespace metro
