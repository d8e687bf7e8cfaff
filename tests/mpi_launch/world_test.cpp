#include "mpi_launch/world.hpp"

#include "base/error.hpp"
#include "mpi_launch/kokkos_runtime.hpp"

#include <catch2/catch.hpp>

#include <mpi.h>

#include <vector>

// The World of the process is made by the main of the MPI tests; what it reports is checked by launch_program.

TEST_CASE("nodes are numbered in the order of their lowest ranks") {
  const auto nodes = [](std::vector<std::int64_t> lowest) { return metro::number_nodes(lowest); };

  CHECK(nodes({0}) == std::vector<std::int64_t>{0});
  CHECK(nodes({0, 0, 0, 0}) == std::vector<std::int64_t>{0, 0, 0, 0});
  CHECK(nodes({0, 0, 2, 2}) == std::vector<std::int64_t>{0, 0, 1, 1});
  CHECK(nodes({0, 1, 0, 1, 4, 1}) == std::vector<std::int64_t>{0, 1, 0, 1, 2, 1});  // placed round robin
}

TEST_CASE("a second World in a process is a bug") {
  CHECK_THROWS_AS(metro::World(nullptr, nullptr), metro::Bug);
}

TEST_CASE("Kokkos names its version and backends and is started once") {
  CHECK_THAT(metro::kokkos_description(),
             Catch::Matchers::Matches("Kokkos [0-9]+\\.[0-9]+\\.[0-9]+ \\([A-Za-z, ]+\\)"));
  CHECK_THROWS_AS(metro::initialise_kokkos(1, false), metro::Bug);
  CHECK_THROWS_AS(metro::initialise_kokkos(0, false), metro::Bug);
}
