#include "base/threads.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace metro {

namespace {

class Items {
 public:
  Items(std::int64_t num_items, const std::function<void(std::int64_t, std::int64_t)>& work)
      : end_(num_items), work_(&work) {}

  void run(std::int64_t thread_idx) {
    for (std::int64_t item = next_++; item < end_; item = next_++) {
      try {
        (*work_)(item, thread_idx);
      } catch (...) {
        fail(item, std::current_exception());
      }
    }
  }

  void stop() { end_ = 0; }

  void rethrow() const {
    if (failure_ != nullptr) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  void fail(std::int64_t item, std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (item < end_) {
      end_ = item;
      failure_ = std::move(failure);
    }
  }

  std::atomic<std::int64_t> next_ = 0;
  std::atomic<std::int64_t> end_;  // the lowest item that failed, or the number of items
  const std::function<void(std::int64_t, std::int64_t)>* work_;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

void for_each_on_threads(std::int64_t num_items, std::int64_t num_threads,
                         const std::function<void(std::int64_t item, std::int64_t thread_idx)>& work) {
  METRO_REQUIRE(num_items >= 0 && num_threads >= 1, std::to_string(num_items) + ", " + std::to_string(num_threads));
  Items items(num_items, work);
  std::vector<std::jthread> others;
  try {
    for (std::int64_t thread_idx = 1; thread_idx < std::min(num_items, num_threads); ++thread_idx) {
      others.emplace_back([&items, thread_idx] { items.run(thread_idx); });
    }
  } catch (const std::system_error& error) {
    items.stop();
    throw Error(ExitCode::machine, "cannot start thread " + std::to_string(others.size() + 1) + " of " +
                                       std::to_string(num_threads) + ": " + error.what());
  }
  items.run(0);
  others.clear();  // waits for them
  items.rethrow();
}

}  // namespace metro
