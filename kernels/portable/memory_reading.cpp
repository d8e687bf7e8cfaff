// Reading memory by kernels: neighbouring threads read neighbouring words, each many of them.
#include "kernels/memory_speed.hpp"
#include "kernels/portable/kokkos_compat.hpp"

namespace metro {

void sum_words_by_threads(const std::uint64_t* data, std::int64_t num_words, std::uint64_t* sums) {
  portable::require_kernel_memory("sum_words", {{"data", data}, {"sums", sums}});
  portable::for_each_item(
      "sum_words", num_reading_threads, KOKKOS_LAMBDA(std::int64_t thread) {
        constexpr std::int64_t at_once = 4;  // words that are under way
        std::uint64_t parts[at_once] = {};
        std::int64_t i = thread;
        for (; i + (at_once - 1) * num_reading_threads < num_words; i += at_once * num_reading_threads) {
          for (std::int64_t part = 0; part < at_once; ++part) {
            parts[part] += data[i + part * num_reading_threads];
          }
        }
        for (; i < num_words; i += num_reading_threads) {
          parts[0] += data[i];
        }
        sums[thread] = parts[0] + parts[1] + parts[2] + parts[3];
      });
}

}  // namespace metro
