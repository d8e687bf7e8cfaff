// Threads of one kernel call, and which strips each of them computes. Who computes what changes no bit.
#pragma once

#include "kernels/cpu/strip_product.hpp"
#include "kernels/cpu_settings.hpp"

#include <algorithm>
#include <cstdint>

namespace metro::cpu {

// Threads for reading num_bytes in at most num_parts parts.
inline std::int64_t num_threads_for(std::int64_t num_bytes, std::int64_t num_parts) {
  return std::clamp<std::int64_t>(std::min(num_parts, num_bytes / least_bytes_of_thread()), 1, num_kernel_threads());
}

// Runs work(thread_idx) for thread_idx 0 .. num_threads - 1 side by side and waits for all.
template <class F>
void run_threads(std::int64_t num_threads, const F& work) {
  if (num_threads == 1) {
    return work(0);
  }
#ifdef _OPENMP
#pragma omp parallel for num_threads(static_cast <int>(num_threads)) schedule(static, 1) default(none) \
    shared(work, num_threads)
#endif
  for (std::int64_t thread_idx = 0; thread_idx < num_threads; ++thread_idx) {
    work(thread_idx);
  }
}

// Runs work(part) for part 0 .. num_parts - 1 on num_threads threads: whichever is free takes the next.
template <class F>
void run_parts(std::int64_t num_threads, std::int64_t num_parts, const F& work) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(static_cast <int>(num_threads)) schedule(dynamic) default(none) \
    shared(work, num_parts) if (num_threads > 1)
#endif
  for (std::int64_t part = 0; part < num_parts; ++part) {
    work(part);
  }
}

// Runs work(item) for item 0 .. num_items - 1, which may differ in size, shared among the threads: as many as suit
// num_bytes that all items together read.
template <class F>
void run_items(std::int64_t num_items, std::int64_t num_bytes, const F& work) {
  run_parts(num_threads_for(num_bytes, num_items), num_items, work);
}

// The same for items of which a few are not worth another thread.
template <class F>
void run_items(std::int64_t num_items, const F& work) {
  constexpr std::int64_t least_items = 8;  // of a thread
  run_parts(std::clamp<std::int64_t>(num_items / least_items, 1, num_kernel_threads()), num_items, work);
}

// Parts into which num_threads threads cut so many strips: small ones, so that no thread waits long for the last, which
// matters where others use the machine as well; but no smaller than a few strips that are read at the same time.
constexpr std::int64_t num_parts_for(std::int64_t num_threads, std::int64_t num_strips) {
  constexpr std::int64_t parts_of_thread = 8;
  return num_threads == 1 ? 1 : std::clamp(num_strips / (2 * most_panels), num_threads, num_threads * parts_of_thread);
}

constexpr std::int64_t num_strips(std::int64_t out) {
  return (out + panel_columns - 1) / panel_columns;
}

// What a strip of a block of rows costs: reading the weights, or computing where there are many rows.
constexpr std::int64_t cost_of_strip(std::int64_t num_rows) {
  return std::max<std::int64_t>(num_rows, 8);
}

// Neighbouring strips of one block of rows.
struct StripRange {
  std::int64_t first_row;  // of the item
  std::int64_t num_rows;
  std::int64_t first;
  std::int64_t last;  // one past
};

// One part of the work on items that have num_rows(item) rows and `strips` strips each. The strips of all items in a
// row, block by block, are cut into stretches of equal cost: weights are read in the order in which they lie, and the
// inputs of a block seldom by two threads.
class Share {
 public:
  template <class NumRows>
  Share(std::int64_t num_items, const NumRows& num_rows, std::int64_t strips, std::int64_t part, std::int64_t num_parts)
      : strips_(strips) {
    std::int64_t cost = 0;
    for (std::int64_t item = 0; item < num_items; ++item) {
      for (std::int64_t row = 0; row < num_rows(item); row += block_rows) {
        cost += strips * cost_of_strip(std::min(num_rows(item) - row, block_rows));
      }
    }
    begin_ = cost * part / num_parts;
    end_ = cost * (part + 1) / num_parts;
  }

  // Calls work(item, StripRange) for what is in the share, in order. A strip belongs to the share in which it begins.
  template <class NumRows, class F>
  void for_each(std::int64_t num_items, const NumRows& num_rows, const F& work) const {
    std::int64_t before = 0;
    for (std::int64_t item = 0; item < num_items; ++item) {
      for (std::int64_t row = 0; row < num_rows(item); row += block_rows) {
        const std::int64_t rows = std::min(num_rows(item) - row, block_rows);
        const std::int64_t cost = cost_of_strip(rows);
        const StripRange range{row, rows, strip_at(begin_ - before, cost), strip_at(end_ - before, cost)};
        if (range.first < range.last) {
          work(item, range);
        }
        before += strips_ * cost;
      }
    }
  }

 private:
  // The first strip that begins at or after `position`, strips being `cost` long, in steps of those read at a time.
  std::int64_t strip_at(std::int64_t position, std::int64_t cost) const {
    const std::int64_t step = cost * most_panels;
    const std::int64_t strip = (std::max<std::int64_t>(position, 0) + step - 1) / step * most_panels;
    return std::min(strip, strips_);
  }

  std::int64_t strips_;
  std::int64_t begin_;
  std::int64_t end_;
};

}  // namespace metro::cpu
