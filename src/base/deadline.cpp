#include "base/deadline.hpp"

#include "base/error.hpp"
#include "base/last_words.hpp"
#include "base/stop_signals.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <system_error>

namespace metro {

namespace {

using Seconds = std::chrono::duration<double>;

// Signals are for the thread that runs the program: the watcher must not be where their handlers run.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Deadline::Deadline(const char* call, double seconds)
    : last_words_(fmt::format("waited {:g} s in {}: a rank has stopped or is too slow", seconds, call)) {
  METRO_REQUIRE(seconds > 0.0, std::to_string(seconds));
  const AllSignalsBlocked blocked;
  try {
    watcher_ = std::thread([this, seconds] { watch(seconds); });
  } catch (const std::system_error& failure) {
    throw Error(ExitCode::machine, fmt::format("cannot start a thread that watches over {}: {}", call, failure.what()));
  }
}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  watcher_.join();
}

void Deadline::watch(double seconds) {
  std::unique_lock lock(mutex_);
  // In short waits, each of which counts as no longer than it is: what a suspended job missed is nobody's fault.
  const auto is_over_within = [&](double total_s) {
    for (double left_s = total_s; left_s > 0.0 && !is_over_;) {
      const double step_s = std::min(left_s, 1.0);
      changed_.wait_for(lock, Seconds(step_s), [&] { return is_over_; });
      left_s -= step_s;
    }
    return is_over_;
  };
  if (is_over_within(seconds)) {
    return;
  }
  const double turn_s = 0.25 * static_cast<double>(std::min<std::int64_t>(identity_rank(), 4));
  if (is_over_within(turn_s)) {
    return;
  }
  if (termination_is_unanswered()) {
    leave_silently();
  }
  write_last_words(last_words_.c_str());
  ::_exit(static_cast<int>(ExitCode::machine));
}

}  // namespace metro
