// A program that starts and ends as metro does, in every way a job can end. The tests check what it prints and its exit
// code under mpiexec.
// usage: launch_program report|threads|agreed|one-rank|abort|abort-before|abort-after|silent-start|silent-end
#include "base/error.hpp"
#include "mpi_launch/world.hpp"
#include "transport/agree.hpp"
#include "transport/transport.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace {

int exit_code_of(metro::ExitCode code) {
  return static_cast<int>(code);
}

// One host in these tests: all ranks on node 0.
void report(const metro::World& world) {
  const auto size = static_cast<std::size_t>(world.size());
  const bool sound = world.rank_to_host() == std::vector<std::string>(size, world.host()) && !world.host().empty() &&
                     world.rank_to_node() == std::vector<std::int64_t>(size, 0) && world.num_nodes() == 1;
  std::printf("rank %d of %d: %s; %s; %s\n", static_cast<int>(world.rank()), static_cast<int>(world.size()),
              sound ? "sound" : "wrong", world.mpi_version().c_str(), world.kokkos_description().c_str());
}

// Whether Open MPI or MPICH has started this process as the last of its job.
bool is_last_launched() {
  const auto number = [](const char* one, const char* other) {
    const char* const text = std::getenv(one) != nullptr ? std::getenv(one) : std::getenv(other);
    return text == nullptr ? -1 : std::atoi(text);
  };
  return number("OMPI_COMM_WORLD_RANK", "PMI_RANK") == number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE") - 1;
}

// Runs inside the life of World, as a subcommand does. Returns the exit code.
int run(const std::string& mode, const metro::World& world) {
  const auto transport = metro::make_mpi_transport(60.0);
  const bool last = world.rank() == world.size() - 1;
  try {
    if (mode == "report" || mode == "threads") {
      report(world);
    } else if (mode == "agreed") {
      metro::agree(*transport, [&] {
        if (last) {
          throw metro::Error(metro::ExitCode::checkpoint, "only one rank saw this");
        }
      });
    } else if (mode == "one-rank" && last) {
      throw metro::Bug("only the last rank is here");
    } else if (mode == "abort" && last) {
      std::printf("still in the buffer");
      metro::World::abort(exit_code_of(metro::ExitCode::input));
    }
    transport->barrier();
  } catch (const metro::AgreedError& error) {
    if (world.rank() == 0) {
      std::fprintf(stderr, "metro: %s\n", error.what());
    }
    return exit_code_of(error.exit_code());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string mode = argc > 1 ? argv[1] : "report";
  if (mode == "abort-before") {
    metro::World::abort(exit_code_of(metro::ExitCode::usage));
  }
  int exit_code = 0;
  {
    if (mode == "silent-start" && is_last_launched()) {
      std::this_thread::sleep_for(std::chrono::minutes(10));  // ended with the job
    }
    metro::World world(&argc, &argv, mode == "silent-start" ? 2.0 : metro::World::default_timeout_s);
    world.start_kokkos(mode == "threads" ? 4 : 1);
    exit_code = run(mode, world);
    if (mode == "silent-end") {
      world.set_timeout(0.5);
      if (world.rank() == world.size() - 1) {
        std::this_thread::sleep_for(std::chrono::minutes(10));
      }
    }
  }
  if (mode == "abort-after") {
    metro::World::abort(exit_code_of(metro::ExitCode::stopped));
  }
  return exit_code;
} catch (const metro::Error& error) {
  std::fprintf(stderr, "metro: %s\n", error.what());
  metro::World::abort(exit_code_of(error.exit_code()));
} catch (const std::exception& failure) {
  std::fprintf(stderr, "metro: %s\n", failure.what());
  metro::World::abort(exit_code_of(metro::ExitCode::internal));
}
