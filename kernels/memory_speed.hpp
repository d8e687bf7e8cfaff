// Reading memory and nothing else: what the speed of the other kernels is held against.
#pragma once

#include <cstdint>

namespace metro {

// How a stretch of memory is read. Which way is fastest depends on the machine.
struct ReadingOrder {
  std::int64_t prefetch_bytes = 0;  // how far ahead memory is asked; 0 leaves that to the hardware
  std::int64_t num_streams = 1;     // places that are read at a time: 1, 4 or 8
};

// On the host: the sum of all 64-bit words of data [num_words], modulo 2^64, read by num_kernel_threads() threads, each
// its own stretch.
std::uint64_t sum_of_words(const std::uint64_t* data, std::int64_t num_words, const ReadingOrder& order);

inline constexpr std::int64_t num_reading_threads = 1 << 18;  // of a device: all that it runs at a time

// In the queue of kernels: sums[i], of sums [num_reading_threads], is the sum modulo 2^64 of the words of data
// [num_words] whose place is i modulo num_reading_threads. Both in the memory of kernels.
void sum_words_by_threads(const std::uint64_t* data, std::int64_t num_words, std::uint64_t* sums);

}  // namespace metro
