// What is noted stays noted for the life of a process: each test works in a child of its own.
#include "base/stop_signals.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <csignal>

using metro::catch_stop_signals;
using metro::stop_is_requested;
using metro::termination_is_unanswered;

namespace {

// The wait status of a child that does `work` and then ends with exit code 0 if that returned true.
template <class F>
int status_of_child(const F& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::_exit(work() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

bool raises(int signal) {
  return std::raise(signal) == 0;
}

}  // namespace

TEST_CASE("the first signal of a kind asks to stop, and all but SIGUSR1 may mean that a rank has failed") {
  CHECK(status_of_child([] {
          catch_stop_signals();
          return !stop_is_requested() && raises(SIGUSR1) && stop_is_requested() && !termination_is_unanswered();
        }) == 0);
  for (const int signal : {SIGTERM, SIGINT}) {
    CHECK(status_of_child([signal] {
            catch_stop_signals();
            return !termination_is_unanswered() && raises(signal) && stop_is_requested() && termination_is_unanswered();
          }) == 0);
  }
}

TEST_CASE("once the ranks have agreed to stop nobody takes a signal for a failed rank") {
  CHECK(status_of_child([] {
          catch_stop_signals();
          const bool raised = raises(SIGTERM);
          metro::answer_stop_signals();
          return raised && stop_is_requested() && !termination_is_unanswered();
        }) == 0);
}

TEST_CASE("the second signal of a kind ends the process") {
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) {
    const int status = status_of_child([signal] {
      // A handler of the test program would be in place of the default action.
      std::signal(signal, SIG_DFL);
      catch_stop_signals();
      return raises(signal) && raises(signal);
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
  }
}

TEST_CASE("a signal that the process was started to ignore stays ignored") {
  CHECK(status_of_child([] {
          std::signal(SIGINT, SIG_IGN);
          catch_stop_signals();
          return raises(SIGINT) && raises(SIGINT) && !stop_is_requested();
        }) == 0);
}
