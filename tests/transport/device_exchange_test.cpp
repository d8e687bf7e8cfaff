// The exchange of memory of kernels that is made from a transport: the rules of the transport hold for it. Compiled for
// kernels of the host and for those of a device.
#include "transport/device_exchange.hpp"
#include "transport/exchange_checks.hpp"

#include <catch2/catch.hpp>

using metro::test::check_all_gather;
using metro::test::check_all_to_all;

namespace {

constexpr double timeout_s = 60.0;

}  // namespace

TEST_CASE("memory of kernels is gathered, whatever its sizes") {
  const auto transport = metro::make_mpi_transport(timeout_s);
  const auto exchange = metro::make_device_exchange(*transport);

  check_all_gather(*exchange, [](auto) { return 4096; });
  check_all_gather(*exchange, [](auto rank) { return 100 * rank + 3; });
  check_all_gather(*exchange, [](auto rank) { return rank % 2 == 0 ? 5 : 0; });
  check_all_gather(*exchange, [](auto) { return 0; });
  check_all_gather(*exchange, [&](auto rank) { return rank == exchange->size() - 1 ? 200 : 0; });
}

TEST_CASE("memory of kernels goes from all ranks to all ranks, whatever its sizes") {
  const auto transport = metro::make_mpi_transport(timeout_s);
  const auto exchange = metro::make_device_exchange(*transport);

  check_all_to_all(*exchange, [](auto from, auto to) { return 50 * from + to; });
  check_all_to_all(*exchange, [](auto from, auto to) { return from < to ? 90 : 0; });
  check_all_to_all(*exchange, [](auto from, auto) { return from == 0 ? 70 : 0; });
  check_all_to_all(*exchange, [](auto, auto to) { return to == 0 ? 70 : 0; });
  check_all_to_all(*exchange, [](auto from, auto to) { return from == to ? 70 : 0; });
  check_all_to_all(*exchange, [](auto, auto) { return 0; });
}

TEST_CASE("exchanges of memory of kernels in a row do not mix") {
  const auto transport = metro::make_mpi_transport(timeout_s);
  const auto exchange = metro::make_device_exchange(*transport);

  for (std::int64_t round = 0; round < 20; ++round) {
    check_all_to_all(*exchange, [&](auto from, auto to) { return (from * 5 + to * 3 + round * 11) % 40; });
    check_all_gather(*exchange, [&](auto rank) { return (rank * 7 + round) % 30; });
  }
}
