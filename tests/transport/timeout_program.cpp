// A program in which the last rank never enters a collective that all others have entered.
// usage: timeout_program all-gather|all-to-all|broadcast|all-reduce|barrier|end [CASE]
// end: they have left their transport. CASE:
//   SIGTERM    they get that signal, as from a launcher that has seen a rank fail
//   late       the last rank comes when they have given up
//   elsewhere  it waits in another operation
//   first      the first rank stays away as well
//   killed     the last rank is killed
//   crashed    the last rank crashes
//   failed     the last rank throws
//   nodes      they exchange in two levels, as if on nodes of two ranks
#include "base/error.hpp"
#include "base/last_words.hpp"
#include "base/stop_signals.hpp"
#include "mpi_launch/world.hpp"
#include "transport/mpi_transport.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

void enter(const std::string& operation, metro::Transport& transport) {
  const auto size = static_cast<std::size_t>(transport.size());
  const std::vector<std::int64_t> bytes(size, 8);
  std::vector<std::int64_t> values(size, 1);
  std::vector<std::int64_t> others(size, 0);
  const auto sent = std::as_bytes(std::span(values));
  const auto received = std::as_writable_bytes(std::span(others));
  if (operation == "all-gather") {
    transport.all_gather(sent.first(8), received, bytes);
  } else if (operation == "all-to-all") {
    transport.all_to_all(sent, bytes, received, bytes);
  } else if (operation == "broadcast") {
    transport.broadcast(received, transport.size() - 1);
  } else if (operation == "all-reduce") {
    transport.all_reduce_sum(values);
  } else {
    transport.barrier();
  }
}

std::unique_ptr<metro::Transport> two_level_transport() {
  auto transport = std::make_unique<metro::MpiTransport>(0.5, metro::MpiTransport::default_piece_bytes, 2);
  METRO_REQUIRE(transport->prepare_two_levels(4096), "two levels need more than two ranks");
  transport->set_levels(metro::Levels::two);
  return transport;
}

}  // namespace

int main(int argc, char** argv) try {
  const metro::World world(&argc, &argv);
  const std::string operation = argc > 1 ? argv[1] : "barrier";
  const std::string what = argc > 2 ? argv[2] : "";
  const bool dies = what == "killed" || what == "crashed" || what == "failed";
  const auto transport = what == "nodes" ? two_level_transport() : metro::make_mpi_transport(dies ? 60.0 : 0.5);
  transport->set_phase("layer 3 combine");
  metro::report_crashes();
  if (dies || what == "SIGTERM") {
    metro::catch_stop_signals();  // as `metro run` does
  }
  if (world.rank() == world.size() - 1 || (what == "first" && world.rank() == 0)) {
    if (what == "failed") {
      throw metro::Error(metro::ExitCode::checkpoint, "no such expert");
    }
    if (dies) {
      std::raise(what == "killed" ? SIGKILL : SIGSEGV);
    } else if (what == "elsewhere") {
      enter("all-to-all", *transport);
    }
    std::this_thread::sleep_for(what == "late" ? std::chrono::milliseconds(700) : std::chrono::minutes(10));
  } else if (what == "SIGTERM") {
    std::raise(SIGTERM);
  }
  if (operation != "end") {
    enter(operation, *transport);
    enter("barrier", *transport);
  }
  return EXIT_SUCCESS;
} catch (const metro::Error& error) {
  metro::write_last_words(error.what());
  metro::World::abort(static_cast<int>(error.exit_code()));
}
