// Core dumps are off, can be allowed again, and a process that is killed by a fault leaves none.
#include "mpi_launch/core_dumps.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <csignal>

using metro::CoreDumps;

namespace {

rlimit core_limit() {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_CORE, &limit) == 0);
  return limit;
}

}  // namespace

TEST_CASE("core dumps are limited to less than any dump needs, and can be allowed again") {
  const rlimit before = core_limit();

  const CoreDumps core_dumps;
  const rlimit off = core_limit();
  core_dumps.allow();
  const rlimit after = core_limit();

  CHECK(off.rlim_cur <= 1);
  CHECK(off.rlim_max == before.rlim_max);
  CHECK(after.rlim_cur == before.rlim_cur);
  CHECK(after.rlim_max == before.rlim_max);
}

TEST_CASE("a process that a fault ends leaves no core dump") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_CORE, &all);  // where it is not allowed, the limit is stricter still
    const CoreDumps core_dumps;
    ::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
    ::_exit(0);
  }
  int status = 0;

  REQUIRE(::waitpid(child, &status, 0) == child);

  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
  CHECK_FALSE(WCOREDUMP(status));
}
