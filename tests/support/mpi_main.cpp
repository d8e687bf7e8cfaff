// Catch2's main for tests that run on several ranks under mpiexec. Every rank runs every test case; what Catch prints
// is kept back, so that only failing ranks speak (and rank 0, about a test that passed). All ranks leave with the exit
// code of the worst. Between two collective calls use CHECK, not REQUIRE: a rank that leaves a test early leaves the
// others waiting until the transport's time-out.
#include "base/error.hpp"
#include "mpi_launch/world.hpp"

#define CATCH_CONFIG_RUNNER
#define CATCH_CONFIG_NOSTDOUT
#include <catch2/catch.hpp>

#include <mpi.h>

#include <cstdio>
#include <exception>
#include <sstream>

namespace {

std::ostringstream& kept_back() {
  static std::ostringstream stream;
  return stream;
}

std::string& who() {
  static std::string name;
  return name;
}

void print_kept_back() {
  const std::string text = who() + kept_back().str() + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  kept_back().str("");
}

// Prints at the end of a failed test case, not of the run: the next collective may never return.
class FailurePrinter : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (!stats.totals.assertions.allOk()) {
      print_kept_back();
    }
  }
};

CATCH_REGISTER_LISTENER(FailurePrinter)

int worst_of_all_ranks(int exit_code) {
  int worst = 0;
  if (MPI_Allreduce(&exit_code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD) != MPI_SUCCESS) {
    return static_cast<int>(metro::ExitCode::machine);
  }
  return worst;
}

}  // namespace

namespace Catch {
std::ostream& cout() {
  return kept_back();
}
std::ostream& cerr() {
  return kept_back();
}
std::ostream& clog() {
  return kept_back();
}
}  // namespace Catch

int main(int argc, char** argv) try {
  metro::World world(&argc, &argv);
  world.start_kokkos(1);
  who() =
      "--- rank " + std::to_string(world.rank()) + " of " + std::to_string(world.size()) + " (" + world.host() + ")\n";

  Catch::Session session;
  session.configData().useColour = Catch::UseColour::No;  // mpiexec gives its ranks a terminal
  const int exit_code = session.run(argc, argv);

  if (exit_code != 0 || world.rank() == 0) {
    print_kept_back();
  }
  return worst_of_all_ranks(exit_code);
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  metro::World::abort(static_cast<int>(metro::ExitCode::machine));
}
