#include "base/stop_signals.hpp"

#include "base/error.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>

namespace metro {

namespace {

// What a signal handler may touch.
volatile std::sig_atomic_t requested = 0;
volatile std::sig_atomic_t terminated = 0;
volatile std::sig_atomic_t is_answered = 0;

void note(int signal) {
  requested = 1;
  if (signal != SIGUSR1) {
    terminated = 1;
  }
}

}  // namespace

void catch_stop_signals() {
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) {
    struct sigaction old {};
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    if (::sigaction(signal, nullptr, &old) != 0 ||
        (old.sa_handler != SIG_IGN && ::sigaction(signal, &action, nullptr) != 0)) {
      throw Error(ExitCode::machine, std::string("sigaction: ") + std::strerror(errno));
    }
  }
}

bool stop_is_requested() {
  return requested != 0;
}

bool termination_is_unanswered() {
  return terminated != 0 && is_answered == 0;
}

void answer_stop_signals() {
  is_answered = 1;
}

}  // namespace metro
