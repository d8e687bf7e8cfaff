// Catch2's main for tests that need neither MPI nor Kokkos.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
