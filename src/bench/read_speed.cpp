#include "bench/read_speed.hpp"

#include "kernels/queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace metro {

double seconds_of(const std::function<void()>& run) {
  wait_for_kernels();
  const auto begin = std::chrono::steady_clock::now();
  run();
  wait_for_kernels();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double least_of(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

ReadSpeed::ReadSpeed(std::span<const std::uint64_t> memory) : memory_(memory) {
  if (!kernels_use_host_memory()) {
    sums_ = Buffer<std::uint64_t>("sums of what is read", num_reading_threads);
  }
}

void ReadSpeed::choose_order() {
  if (!kernels_use_host_memory()) {
    return;
  }
  constexpr std::size_t num_passes = 5;
  const auto num_bytes = static_cast<std::int64_t>(memory_.size_bytes());
  const std::int64_t chunk_bytes = std::min(num_bytes, std::int64_t{64} << 20);
  const std::int64_t num_chunks = std::max<std::int64_t>(num_bytes / std::max<std::int64_t>(chunk_bytes, 1), 1);
  std::vector<std::pair<double, ReadingOrder>> results;
  for (const std::int64_t prefetch_bytes : {0, 2048, 8192}) {
    for (const std::int64_t num_streams : {1, 4, 8}) {
      results.push_back({1e30, {prefetch_bytes, num_streams}});
    }
  }
  for (std::size_t i = 0; i < num_passes * results.size(); ++i) {
    auto& [best, order] = results[i % results.size()];
    best = std::min(best, read(static_cast<std::int64_t>(i) % num_chunks * chunk_bytes, chunk_bytes, order));
  }
  order_ = std::min_element(results.begin(), results.end(), [](const auto& a, const auto& b) {
             return a.first < b.first;
           })->second;
}

double ReadSpeed::read(std::int64_t first_byte, std::int64_t num_bytes, const ReadingOrder& order) {
  if (!kernels_use_host_memory()) {
    return seconds_of([&] { sum_words_by_threads(memory_.data() + first_byte / 8, num_bytes / 8, sums_.data()); });
  }
  return seconds_of(
      [&] { checksum_ = checksum_ + sum_of_words(memory_.data() + first_byte / 8, num_bytes / 8, order); });
}

std::string description_of(const ReadingOrder& order) {
  return fmt::format("in {} stream{}, {}", order.num_streams, order.num_streams == 1 ? "" : "s",
                     order.prefetch_bytes == 0 ? "without prefetch"
                                               : fmt::format("with prefetch {} bytes ahead", order.prefetch_bytes));
}

}  // namespace metro
