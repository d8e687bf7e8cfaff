// Items shared among threads: each once, and the error of a single thread.
#include "base/threads.hpp"

#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <barrier>
#include <vector>

using metro::Error;
using metro::ExitCode;
using metro::for_each_on_threads;
using metro::test::expect_error;

TEST_CASE("every item is worked on once, whatever the number of threads") {
  const std::int64_t num_items = GENERATE(0, 1, 7, 100);
  const std::int64_t num_threads = GENERATE(1, 2, 5);
  std::vector<std::atomic<int>> times(static_cast<std::size_t>(num_items));
  std::atomic<bool> fine = true;

  for_each_on_threads(num_items, num_threads, [&](std::int64_t item, std::int64_t thread_idx) {
    ++times[static_cast<std::size_t>(item)];
    fine = fine && thread_idx >= 0 && thread_idx < num_threads;
  });

  CHECK(fine);
  for (const auto& count : times) {
    CHECK(count == 1);
  }
}

TEST_CASE("of several failures the one of the lowest item is thrown, and later items do not begin") {
  // Both threads are inside an item when the later one fails.
  std::barrier both(2);
  std::atomic<int> num_begun = 0;

  expect_error(ExitCode::input, {"item 0"}, [&] {
    for_each_on_threads(50, 2, [&](std::int64_t item, std::int64_t) {
      ++num_begun;
      both.arrive_and_wait();
      throw Error(item == 0 ? ExitCode::input : ExitCode::usage, "item " + std::to_string(item));
    });
  });

  CHECK(num_begun == 2);
}

TEST_CASE("without threads there is nothing to work on items") {
  CHECK_THROWS_AS(for_each_on_threads(1, 0, [](std::int64_t, std::int64_t) {}), metro::Bug);
}
