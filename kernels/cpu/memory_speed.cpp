#include "kernels/memory_speed.hpp"

#include "kernels/cpu/team.hpp"

#include <atomic>
#include <cstring>

namespace metro {

namespace {

constexpr std::int64_t words_of_line = 8;
constexpr std::int64_t num_lines = 4;  // added up side by side

// Lines at data + i * stride for i below num_lines, and so on from there: num_steps times.
std::uint64_t sum_of_lines(const std::uint64_t* data, std::int64_t num_steps, std::int64_t stride, std::int64_t step,
                           std::int64_t prefetch_bytes) {
  using Line = std::uint64_t __attribute__((vector_size(words_of_line * sizeof(std::uint64_t))));
  Line sums[num_lines] = {};
  for (std::int64_t i = 0; i < num_steps; ++i) {
    for (std::int64_t line = 0; line < num_lines; ++line) {
      const std::uint64_t* source = data + i * step + line * stride;
      if (prefetch_bytes > 0) {
        __builtin_prefetch(reinterpret_cast<const char*>(source) + prefetch_bytes);
      }
      Line words;
      std::memcpy(&words, source, sizeof words);
      sums[line] += words;
    }
  }
  std::uint64_t sum = 0;
  for (const Line& line : sums) {
    for (std::int64_t word = 0; word < words_of_line; ++word) {
      sum += line[word];
    }
  }
  return sum;
}

std::uint64_t sum_of_stretch(const std::uint64_t* data, std::int64_t num_words, const ReadingOrder& order) {
  const std::int64_t num_steps = num_words / (num_lines * words_of_line);
  std::uint64_t sum =
      order.four_streams
          ? sum_of_lines(data, num_steps, num_steps * words_of_line, words_of_line, order.prefetch_bytes)
          : sum_of_lines(data, num_steps, words_of_line, num_lines * words_of_line, order.prefetch_bytes);
  for (std::int64_t i = num_steps * num_lines * words_of_line; i < num_words; ++i) {
    sum += data[i];
  }
  return sum;
}

}  // namespace

std::uint64_t sum_of_words(const std::uint64_t* data, std::int64_t num_words, const ReadingOrder& order) {
  const std::int64_t num_threads = cpu::num_threads_for(num_words * 8, num_words / (num_lines * words_of_line));
  std::atomic<std::uint64_t> sum = 0;
  cpu::run_threads(num_threads, [&](std::int64_t thread_idx) {
    const std::int64_t begin = num_words * thread_idx / num_threads;
    const std::int64_t end = num_words * (thread_idx + 1) / num_threads;
    sum += sum_of_stretch(data + begin, end - begin, order);
  });
  return sum;
}

}  // namespace metro
