// A program in which the last rank never enters a collective that all others have entered.
// usage: timeout_program all-gather|all-to-all|broadcast|all-reduce|barrier [SIGTERM]
// With SIGTERM the others get that signal, as from a launcher that has seen a rank fail.
#include "base/stop_signals.hpp"
#include "mpi_launch/world.hpp"
#include "transport/transport.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
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

}  // namespace

int main(int argc, char** argv) try {
  const metro::World world(&argc, &argv, 1);
  const auto transport = metro::make_mpi_transport(0.5);
  transport->set_phase("layer 3 combine");
  if (world.rank() == world.size() - 1) {
    std::this_thread::sleep_for(std::chrono::minutes(10));  // ended with the job
  }
  if (argc > 2) {
    metro::catch_stop_signals();
    std::raise(SIGTERM);
  }
  enter(argc > 1 ? argv[1] : "barrier", *transport);
  return EXIT_SUCCESS;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  metro::World::abort(EXIT_FAILURE);
}
