#include "kernels/memory_speed.hpp"

#include "base/error.hpp"
#include "kernels/cpu/team.hpp"

#include <atomic>
#include <cstring>
#include <string>

namespace metro {

namespace {

constexpr std::int64_t words_of_line = 8;

// num_streams stretches of stream_words words, one behind the other, a line of each in turn.
template <int num_streams>
std::uint64_t sum_of_streams(const std::uint64_t* data, std::int64_t stream_words, std::int64_t prefetch_bytes) {
  using Line = std::uint64_t __attribute__((vector_size(words_of_line * sizeof(std::uint64_t))));
  constexpr std::int64_t lines_of_turn = num_streams == 1 ? 4 : 1;  // enough to add up side by side
  Line sums[num_streams][lines_of_turn] = {};
  for (std::int64_t i = 0; i + lines_of_turn * words_of_line <= stream_words; i += lines_of_turn * words_of_line) {
    for (int stream = 0; stream < num_streams; ++stream) {
      for (std::int64_t line = 0; line < lines_of_turn; ++line) {
        const std::uint64_t* source = data + stream * stream_words + i + line * words_of_line;
        if (prefetch_bytes > 0) {
          __builtin_prefetch(reinterpret_cast<const char*>(source) + prefetch_bytes);
        }
        Line words;
        std::memcpy(&words, source, sizeof words);
        sums[stream][line] += words;
      }
    }
  }
  std::uint64_t sum = 0;
  for (const auto& stream : sums) {
    for (const Line& line : stream) {
      for (std::int64_t word = 0; word < words_of_line; ++word) {
        sum += line[word];
      }
    }
  }
  return sum;
}

std::uint64_t sum_of_stretch(const std::uint64_t* data, std::int64_t num_words, const ReadingOrder& order) {
  constexpr std::int64_t words_of_turn = 4 * words_of_line;
  const std::int64_t stream_words = num_words / order.num_streams / words_of_turn * words_of_turn;
  std::uint64_t sum = order.num_streams == 8   ? sum_of_streams<8>(data, stream_words, order.prefetch_bytes)
                      : order.num_streams == 4 ? sum_of_streams<4>(data, stream_words, order.prefetch_bytes)
                                               : sum_of_streams<1>(data, stream_words, order.prefetch_bytes);
  for (std::int64_t i = stream_words * order.num_streams; i < num_words; ++i) {
    sum += data[i];
  }
  return sum;
}

}  // namespace

std::uint64_t sum_of_words(const std::uint64_t* data, std::int64_t num_words, const ReadingOrder& order) {
  METRO_REQUIRE(order.num_streams == 1 || order.num_streams == 4 || order.num_streams == 8,
                std::to_string(order.num_streams));
  const std::int64_t num_threads = cpu::num_threads_for(num_words * 8, num_words / (4 * words_of_line));
  std::atomic<std::uint64_t> sum = 0;
  cpu::run_threads(num_threads, [&](std::int64_t thread_idx) {
    const std::int64_t begin = num_words * thread_idx / num_threads;
    const std::int64_t end = num_words * (thread_idx + 1) / num_threads;
    sum += sum_of_stretch(data + begin, end - begin, order);
  });
  return sum;
}

}  // namespace metro
