// MpiTransport: waiting with an end.
#include "base/error.hpp"
#include "base/last_words.hpp"
#include "base/stop_signals.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_transport.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <thread>

namespace metro {

namespace {

// How long a rank that got SIGTERM waits for the others: a rank that lives ends its step within that, and one that has
// failed is the usual reason for the signal.
constexpr double after_signal_s = 5.0;
// From when on, and how often, a rank that waits looks what has become of the others: whether one has given up, and
// (from the second time on) whether the processes are still there.
constexpr double first_look_s = 0.001;
constexpr double between_looks_s = 0.05;
// The job ends so long after a process was found gone. A launcher that ends it has done so before, and says more.
constexpr double after_gone_s = 3.0;
// A rank that hears that others have given up, and has waited for less itself, has only just come.
constexpr double just_come_s = 0.5;

// What to do between two polls after waiting for so long.
void pause_polling(double waited_s) {
  if (waited_s < 0.1) {
    // Returns at once when the core is free. Where ranks share a core it lets the one run that is waited for: without
    // it eight ranks on two cores need tens of milliseconds per collective.
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // a thousandth of what was waited already
  }
}

// As one line, after what this process has printed so far.
void print_error(const std::string& text) {
  std::cout.flush();
  std::fflush(stdout);
  std::fputs(fmt::format("metro: error: {}\n", text).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

bool MpiTransport::test_all() {
  int done = 0;
  const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : statuses_) {
      if (status.MPI_ERROR != MPI_ERR_PENDING) {
        check_mpi(status.MPI_ERROR, "MPI_Testall");
      }
    }
  }
  check_mpi(code, "MPI_Testall");
  return done != 0;
}

void MpiTransport::wait_all(const char* operation) {
  ++num_operations_;
  wait_for_requests(operation);
}

void MpiTransport::wait_for_requests(const char* operation) {
  statuses_.resize(requests_.size());
  wait_until(operation, [this] { return test_all(); });
  require_announced_lengths();
  announced_.clear();
  requests_.clear();
}

void MpiTransport::wait_until(const char* operation, const std::function<bool()>& is_done) {
  constexpr std::int64_t num_eager_polls = 16;
  begin_wait();
  for (std::int64_t poll = 0; !is_done(); ++poll) {
    if (poll >= num_eager_polls) {
      look(operation);
      pause_polling(wait_.waited_s);
    }
  }
}

void MpiTransport::watch(const char* operation, bool begins) {
  if (begins) {
    begin_wait();
  }
  look(operation);
}

void MpiTransport::begin_wait() {
  wait_ = Wait();
  wait_.last = std::chrono::steady_clock::now();
  wait_.next_look_s = first_look_s;
}

void MpiTransport::look(const char* operation) {
  constexpr double longest_gap_s = 1.0;
  // A long gap means that this process was stopped itself (a suspended job): that time is nobody's fault.
  const auto now = std::chrono::steady_clock::now();
  const double since_last_s = std::chrono::duration<double>(now - wait_.last).count();
  const double gap_s = std::min(since_last_s, longest_gap_s);
  wait_.may_speak = wait_.may_speak && since_last_s <= longest_gap_s;
  wait_.last = now;
  wait_.waited_s += gap_s;
  wait_.after_signal_waited_s += termination_is_unanswered() ? gap_s : 0.0;
  const double patience_s = std::min(after_signal_s, timeout_s_);
  if (wait_.after_signal_waited_s > patience_s) {
    give_up(operation, fmt::format("SIGTERM came {:g} s ago, which also tells of a rank that has failed", patience_s));
  }
  if (wait_.waited_s > timeout_s_) {
    give_up(operation, "");
  }
  if (wait_.waited_s > wait_.next_look_s) {
    look_at_peers(operation);
    wait_.next_look_s = wait_.waited_s + between_looks_s;
  }
}

void MpiTransport::require_announced_lengths() {
  for (const Announced& announced : announced_) {
    int bytes = 0;
    check_mpi(MPI_Get_count(&statuses_[announced.request], MPI_BYTE, &bytes), "MPI_Get_count");
    METRO_REQUIRE(bytes == announced.bytes, std::to_string(bytes) + " bytes came from rank " +
                                                std::to_string(announced.source) + " instead of " +
                                                std::to_string(announced.bytes));
  }
}

void MpiTransport::look_at_peers(const char* operation) {
  if (roll_call_->is_called()) {
    // SIGTERM: the launcher ends the job already, and has woken this process if it was stopped.
    wait_.may_speak = wait_.may_speak && wait_.waited_s >= just_come_s && !termination_is_unanswered();
    give_up(operation, "");
  }
  if (wait_.gone_noticed_s > 0.0) {
    if (wait_.waited_s > wait_.gone_noticed_s + after_gone_s) {
      abort_job(static_cast<int>(ExitCode::machine));
    }
    return;
  }
  const std::optional<std::int64_t> gone =
      wait_.waited_s > between_looks_s ? peers_->first_gone() : std::optional<std::int64_t>();
  if (!gone) {
    return;
  }
  wait_.gone_noticed_s = wait_.waited_s;
  const bool has_said_why = flags_ == nullptr || flags_->bytes()[static_cast<std::size_t>(*gone)] != std::byte{0};
  if (!has_said_why && peers_->is_first_alive()) {
    print_error(
        fmt::format("rank {} ({}) is gone: its process was killed or has ended without a word; rank {} waits "
                    "for it in {} during {}",
                    *gone, peers_->host(*gone), rank_, operation, current_phase()));
  }
  leave_silently();
}

void MpiTransport::give_up(const char* operation, const std::string& why) {
  Report own = make_report(rank_, num_operations_, wait_.waited_s, operation, current_phase());
  own.may_speak = wait_.may_speak;
  const std::string text = roll_call_->hold(own, why);
  if (!text.empty()) {
    print_error(text);
  }
  abort_job(static_cast<int>(ExitCode::machine));
}

}  // namespace metro
