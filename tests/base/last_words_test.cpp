// What a process says when it cannot go on: every case in a child of its own.
#include "base/last_words.hpp"
#include "base/deadline.hpp"
#include "base/stop_signals.hpp"
#include "support/child_process.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <thread>

using metro::Deadline;
using metro::write_last_words;
using metro::test::ChildEnd;
using metro::test::end_of_child;

namespace {

void be_rank_3() {
  metro::set_identity(3, "node7");
  metro::set_current_phase("combine");
}

void hang() {
  std::this_thread::sleep_for(std::chrono::minutes(1));
}

}  // namespace

TEST_CASE("last words name rank, host and phase, and are said once") {
  const ChildEnd end = end_of_child([] {
    be_rank_3();
    write_last_words("disk full");
    write_last_words("something else");
  });

  CHECK(end.errors == "metro: error on rank 3 (node7) during combine: disk full\n");
}

TEST_CASE("a process that knows neither rank nor phase has last words too") {
  const ChildEnd end = end_of_child([] { write_last_words("no MPI"); });

  CHECK(end.errors == "metro: error on a rank during start: no MPI\n");
}

TEST_CASE("others see in a flag that a process has said why it ends") {
  const ChildEnd end = end_of_child([] {
    std::byte flag{0};
    metro::set_said_flag(&flag);
    const bool was_clear = flag == std::byte{0};
    write_last_words("disk full");
    ::_exit(was_clear && flag == std::byte{1} ? 7 : 1);
  });

  CHECK(WEXITSTATUS(end.status) == 7);
}

TEST_CASE("who leaves silently says nothing later") {
  const ChildEnd end = end_of_child([] {
    metro::leave_silently();
    write_last_words("disk full");
  });

  CHECK(end.errors.empty());
}

#ifndef __SANITIZE_ADDRESS__
TEST_CASE("a crash is reported with its signal, which ends the process all the same") {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    const ChildEnd end = end_of_child([signal] {
      std::signal(signal, SIG_DFL);  // the test program has a handler
      be_rank_3();
      metro::report_crashes();
      ::raise(signal);
    });

    CHECK(WIFSIGNALED(end.status));
    CHECK(WTERMSIG(end.status) == signal);
    CHECK(end.errors.find("metro: error on rank 3 (node7) during combine: crashed, signal " + std::to_string(signal) +
                          " (") == 0);
  }
}

TEST_CASE("a stack that is used up is reported as well") {
  struct Recursion {
    static int deeper(int depth) {
      volatile char frame[4096];
      frame[0] = static_cast<char>(depth);
      return depth < 0 ? 0 : deeper(depth + 1) + frame[0];
    }
  };

  const ChildEnd end = end_of_child([] {
    std::signal(SIGSEGV, SIG_DFL);
    metro::report_crashes();
    ::_exit(Recursion::deeper(0));
  });

  CHECK(WIFSIGNALED(end.status));
  CHECK(end.errors.find("crashed, signal 11") != std::string::npos);
}
#endif

TEST_CASE("a call that does not come back in time ends the process with exit code 5") {
  const ChildEnd end = end_of_child([] {
    be_rank_3();
    const Deadline deadline("MPI_Finalize", 0.05);
    hang();
  });

  CHECK(WEXITSTATUS(end.status) == 5);
  CHECK(end.errors ==
        "metro: error on rank 3 (node7) during combine: waited 0.05 s in MPI_Finalize: a rank has stopped or is too "
        "slow\n");
}

TEST_CASE("a deadline that is over does nothing") {
  const ChildEnd end = end_of_child([] {
    for (int i = 0; i < 100; ++i) {
      const Deadline deadline("MPI_Finalize", 0.05);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });

  CHECK(end.status == 0);
  CHECK(end.errors.empty());
}

TEST_CASE("a rank whose launcher ends the job says nothing of its deadline") {
  const ChildEnd end = end_of_child([] {
    metro::catch_stop_signals();
    ::raise(SIGTERM);
    const Deadline deadline("MPI_Finalize", 0.05);
    hang();
  });

  CHECK(WEXITSTATUS(end.status) == 5);
  CHECK(end.errors.empty());
}
