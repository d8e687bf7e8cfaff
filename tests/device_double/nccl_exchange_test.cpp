// The exchange of memory of devices by NCCL, on the doubles of NCCL and the CUDA runtime: every collective, what is
// called for it, and every way in which NCCL can fail that leaves the ranks alive (nccl_end_program.cpp has the
// others).
#include "transport/nccl_exchange.hpp"
#include "device_double/device_double.hpp"
#include "device_double/nccl_double.hpp"
#include "kernels/graph.hpp"
#include "support/expect_error.hpp"
#include "transport/exchange_checks.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using metro::Buffer;
using metro::ExitCode;
using metro::test::check_all_gather;
using metro::test::check_all_to_all;
using metro::test::expect_error;
using Calls = std::vector<std::string>;
namespace nccl = metro::nccl_double;

namespace {

constexpr double timeout_s = 30.0;

// The ranks of the job with an exchange by NCCL; nothing injected, nothing called so far.
struct Job {
  Job() {
    nccl::reset();
    exchange = metro::make_nccl_exchange(*transport, timeout_s);
    nccl::reset();
  }
  std::int64_t rank() const { return transport->rank(); }
  std::int64_t size() const { return transport->size(); }

  std::unique_ptr<metro::Transport> transport = metro::make_mpi_transport(timeout_s);
  std::unique_ptr<metro::DeviceExchange> exchange;
};

void gather(metro::DeviceExchange& exchange, std::int64_t bytes) {
  const Buffer<std::byte> sent("sent", bytes);
  const Buffer<std::byte> received("received", bytes * exchange.size());
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(exchange.size()), bytes);
  exchange.all_gather(metro::test::all_of(sent), metro::test::all_of(received), sizes);
  metro::wait_for_kernels();
}

}  // namespace

TEST_CASE("NCCL gathers messages of all sizes in rank order") {
  Job job;

  check_all_gather(*job.exchange, [](auto) { return 4096; });
  check_all_gather(*job.exchange, [](auto rank) { return 100 * (rank + 1); });
  check_all_gather(*job.exchange, [](auto rank) { return rank % 4 == 0 ? 5 : rank % 4 == 2 ? 3 : 0; });
  check_all_gather(*job.exchange, [](auto) { return 0; });
  check_all_gather(*job.exchange, [&](auto rank) { return rank == job.size() - 1 ? 200 : 0; });
}

TEST_CASE("NCCL delivers the message from rank s to rank r to its place, whatever is empty") {
  Job job;

  check_all_to_all(*job.exchange, [](auto from, auto to) { return 50 * from + to; });
  check_all_to_all(*job.exchange, [](auto from, auto to) { return 13 * to + 2 * from + 1; });
  check_all_to_all(*job.exchange, [](auto from, auto to) { return from < to ? 90 : 0; });
  check_all_to_all(*job.exchange, [](auto from, auto) { return from == 0 ? 70 : 0; });
  check_all_to_all(*job.exchange, [](auto, auto to) { return to == 0 ? 70 : 0; });
  check_all_to_all(*job.exchange, [](auto from, auto to) { return from == to ? 70 : 0; });
  check_all_to_all(*job.exchange, [](auto, auto) { return 0; });
}

TEST_CASE("exchanges by NCCL in a row do not mix") {
  Job job;

  for (std::int64_t round = 0; round < 20; ++round) {
    check_all_to_all(*job.exchange, [&](auto from, auto to) { return (from * 5 + to * 3 + round * 11) % 40; });
    check_all_gather(*job.exchange, [&](auto rank) { return (rank * 7 + round) % 30; });
  }
}

TEST_CASE("several exchanges by NCCL may be in the queue before the host waits") {
  Job job;
  const std::vector<std::int64_t> bytes(static_cast<std::size_t>(job.size()), 1);
  const Buffer<std::byte> own = metro::test::buffer_of({static_cast<std::byte>(job.rank() + 1)});
  const Buffer<std::byte> gathered("gathered", job.size());
  const Buffer<std::byte> turned("turned", job.size());

  job.exchange->all_gather(metro::test::all_of(own), metro::test::all_of(gathered), bytes);
  job.exchange->all_to_all(metro::test::all_of(gathered), bytes, metro::test::all_of(turned), bytes);

  // Rank r sends byte i of 1, 2, ... to rank i: each rank gets its own number from everybody.
  CHECK(metro::test::bytes_of(turned) ==
        std::vector<std::byte>(static_cast<std::size_t>(job.size()), static_cast<std::byte>(job.rank() + 1)));
}

TEST_CASE("messages of equal length are one collective, others a group of broadcasts without the empty ones") {
  Job job;
  if (job.size() < 2) {
    return;
  }

  check_all_gather(*job.exchange, [](auto) { return 64; });
  const Calls equal = nccl::calls();
  nccl::reset();
  check_all_gather(*job.exchange, [](auto rank) { return rank < 2 ? 8 + rank : 0; });
  const Calls unequal = nccl::calls();
  nccl::reset();
  check_all_gather(*job.exchange, [](auto) { return 0; });

  CHECK(equal == Calls{"ncclAllGather 64"});
  CHECK(unequal == Calls{"ncclGroupStart", "ncclBroadcast 8 from 0", "ncclBroadcast 9 from 1", "ncclGroupEnd"});
  CHECK(nccl::calls().empty());
}

TEST_CASE("an all-to-all is one group of sends and receives between different ranks with something to say") {
  Job job;
  if (job.size() != 3) {
    return;
  }

  check_all_to_all(*job.exchange, [](auto from, auto to) { return from == to ? 7 : from == 2 ? 0 : 10 * from + to; });

  const std::vector<Calls> expected{
      {"ncclGroupStart", "ncclSend 1 to 1", "ncclRecv 10 from 1", "ncclSend 2 to 2", "ncclGroupEnd"},
      {"ncclGroupStart", "ncclSend 10 to 0", "ncclRecv 1 from 0", "ncclSend 12 to 2", "ncclGroupEnd"},
      {"ncclGroupStart", "ncclRecv 2 from 0", "ncclRecv 12 from 1", "ncclGroupEnd"}};
  CHECK(nccl::calls() == expected[static_cast<std::size_t>(job.rank())]);
}

TEST_CASE("a rank that only copies to itself calls nothing of NCCL") {
  Job job;

  check_all_to_all(*job.exchange, [](auto from, auto to) { return from == to ? 70 : 0; });

  CHECK(nccl::calls().empty());
}

TEST_CASE("an exchange by NCCL can be part of a graph, which moves what is there when it is launched") {
  Job job;
  REQUIRE(job.exchange->may_be_recorded());
  const auto size = static_cast<std::size_t>(job.size());
  const std::vector<std::int64_t> bytes(size, 1);
  const Buffer<std::byte> own("own", 1);
  const Buffer<std::byte> gathered("gathered", job.size());
  metro::wait_for_kernels();
  metro::KernelGraph graph;
  graph.record([&] { job.exchange->all_gather(metro::test::all_of(own), metro::test::all_of(gathered), bytes); });

  for (std::int64_t round = 0; round < 3; ++round) {
    const std::vector<std::byte> sent{static_cast<std::byte>(10 * round + job.rank())};
    metro::copy_from_host(own.data(), std::span<const std::byte>(sent));
    graph.launch();

    std::vector<std::byte> expected;
    for (std::int64_t rank = 0; rank < job.size(); ++rank) {
      expected.push_back(static_cast<std::byte>(10 * round + rank));
    }
    CHECK(metro::test::bytes_of(gathered) == expected);
  }
}

TEST_CASE("an exchange by NCCL ends by flushing and destroying its communicator") {
  Job job;

  check_all_gather(*job.exchange, [](auto rank) { return rank + 1; });
  nccl::reset();
  job.exchange.reset();

  CHECK(nccl::calls() == Calls{"ncclCommFinalize", "ncclCommDestroy"});
}

TEST_CASE("all ranks hear that NCCL does not start on one of them") {
  nccl::reset();
  const auto transport = metro::make_mpi_transport(timeout_s);
  const std::int64_t failing = transport->size() - 1;
  if (transport->rank() == failing) {
    nccl::fail_call("ncclCommInitRankConfig", ncclSystemError);
  }
  ::setenv("NCCL_SOCKET_IFNAME", "eth9", 1);

  expect_error(ExitCode::machine,
               {"NCCL 2.28.9, start: unhandled system error: the double fails in ncclCommInitRankConfig",
                "NCCL_SOCKET_IFNAME, which names the network interfaces for it, is \"eth9\""},
               [&] { metro::make_nccl_exchange(*transport, timeout_s); });

  ::unsetenv("NCCL_SOCKET_IFNAME");
  if (transport->rank() != failing) {
    CHECK(nccl::calls().back() == "ncclCommAbort");
  }
}

TEST_CASE("all ranks hear that rank 0 gets no unique id") {
  nccl::reset();
  const auto transport = metro::make_mpi_transport(timeout_s);
  nccl::fail_call("ncclGetUniqueId", ncclInvalidUsage);

  expect_error(ExitCode::machine, {"NCCL 2.28.9, start: invalid usage: ", "NCCL_SOCKET_IFNAME", "is not set"},
               [&] { metro::make_nccl_exchange(*transport, timeout_s); });
}

TEST_CASE("a start that is never over ends with the time-out on all ranks, and names those that waited") {
  nccl::reset();
  const auto transport = metro::make_mpi_transport(timeout_s);
  if (transport->rank() == transport->size() - 1) {
    nccl::be_silent(0);
  }
  const std::string ranks = transport->size() == 1   ? "rank 0"
                            : transport->size() == 2 ? "ranks 0 and 1"
                                                     : "ranks 0-" + std::to_string(transport->size() - 1);

  expect_error(ExitCode::machine,
               {("NCCL 2.28.9 has not connected " + ranks + " after 0.2 s (run.timeout_s)").c_str(),
                "NCCL_DEBUG=WARN makes it say more"},
               [&] { metro::make_nccl_exchange(*transport, 0.2); });

  CHECK(nccl::calls().back() == "ncclCommAbort");
}

TEST_CASE("two ranks on one device are refused by NCCL itself") {
  nccl::reset();
  const auto transport = metro::make_mpi_transport(timeout_s);
  if (transport->size() < 2) {
    return;
  }
  nccl::refuse_shared_devices(true);  // all ranks of this test use device 0

  expect_error(ExitCode::machine, {"invalid usage: Duplicate GPU detected: ranks "},
               [&] { metro::make_nccl_exchange(*transport, timeout_s); });
}

TEST_CASE("a call that fails aborts the communicator and says what NCCL says") {
  const char* const function = GENERATE("ncclAllGather", "ncclGroupStart", "ncclGroupEnd", "ncclSend", "ncclBroadcast");
  CAPTURE(function);
  Job job;
  if (job.size() < 2 || job.rank() != 0) {
    return;  // the others would wait for it
  }
  nccl::fail_call(function, ncclInternalError);
  const auto size = static_cast<std::size_t>(job.size());
  const Buffer<std::byte> memory("memory", 2 * job.size() + 1);
  const std::span<std::byte> all = metro::test::all_of(memory);
  const std::vector<std::int64_t> ones(size, 1);
  std::vector<std::int64_t> unequal(size, 1);
  unequal[0] = 2;
  const bool is_gather = std::string(function) == "ncclAllGather";
  const bool is_broadcast = std::string(function) == "ncclBroadcast";
  const auto exchange = [&] {
    if (is_gather) {
      job.exchange->all_gather(all.first(1), all.subspan(1, size), ones);
    } else if (is_broadcast) {
      job.exchange->all_gather(all.first(2), all.subspan(2, size + 1), unequal);
    } else {
      job.exchange->all_to_all(all.first(size), ones, all.subspan(size, size), ones);
    }
  };

  expect_error(
      ExitCode::machine,
      {is_gather || is_broadcast ? "NCCL 2.28.9, all-gather by NCCL: internal error: the double fails in nccl"
                                 : "NCCL 2.28.9, all-to-all by NCCL: internal error: the double fails in nccl"},
      exchange);

  CHECK(nccl::calls().back() == "ncclCommAbort");
  expect_error(ExitCode::machine, {"NCCL 2.28.9 has failed before"}, exchange);
}

TEST_CASE("a failure while the device exchanges is found by the wait for kernels") {
  Job job;
  if (job.size() < 2) {
    return;
  }
  nccl::fail_later(ncclRemoteError, 2);
  gather(*job.exchange, 8);

  expect_error(
      ExitCode::machine,
      {"NCCL 2.28.9, all-gather by NCCL: remote process exited or there was a network error: the double fails"},
      [&] { gather(*job.exchange, 8); });

  CHECK(nccl::calls().back() == "ncclCommAbort");
  CHECK_NOTHROW(metro::wait_for_kernels());  // nothing on the device waits any more
}

TEST_CASE("a failure that leaves nothing in the queue is found at the end of the wait for kernels") {
  Job job;
  if (job.size() < 2) {
    return;
  }
  nccl::fail_at_end(ncclRemoteError, 2);
  gather(*job.exchange, 8);

  expect_error(
      ExitCode::machine,
      {"NCCL 2.28.9, all-gather by NCCL: remote process exited or there was a network error: the double fails when it "
       "has run"},
      [&] { gather(*job.exchange, 8); });

  CHECK(metro::device_double::num_queued() == 0);
  CHECK(nccl::calls().back() == "ncclCommAbort");
}

TEST_CASE("the double tells messages that do not match") {
  Job job;
  if (job.size() != 2) {
    return;
  }
  // Rank 0 sends 8 bytes where rank 1 expects 16.
  const bool first = job.rank() == 0;
  const Buffer<std::byte> memory("memory", 16);
  const std::vector<std::int64_t> sent = first ? std::vector<std::int64_t>{0, 8} : std::vector<std::int64_t>{0, 0};
  const std::vector<std::int64_t> received = first ? std::vector<std::int64_t>{0, 0} : std::vector<std::int64_t>{16, 0};
  const std::span<std::byte> all = metro::test::all_of(memory);

  job.exchange->all_to_all(all.first(first ? 8 : 0), sent, all.first(first ? 0 : 16), received);

  if (first) {
    CHECK_NOTHROW(metro::wait_for_kernels());
  } else {
    expect_error(
        ExitCode::machine,
        {"invalid usage: rank 0 takes part with message 0 of 8 bytes, this rank expects message 0 of 16 bytes"},
        [] { metro::wait_for_kernels(); });
  }
}

TEST_CASE("the double tells collectives in another order") {
  Job job;
  if (job.size() != 2) {
    return;
  }
  const Buffer<std::byte> memory("memory", 64);
  const std::span<std::byte> all = metro::test::all_of(memory);
  const std::vector<std::int64_t> fours{4, 4};
  const std::vector<std::int64_t> unequal{4, 8};

  if (job.rank() == 0) {
    job.exchange->all_gather(all.first(4), all.subspan(8, 8), fours);
  } else {
    job.exchange->all_gather(all.first(8), all.subspan(8, 12), unequal);
  }

  expect_error(ExitCode::machine, {"invalid usage: rank ", " takes part with ", ", this rank expects "},
               [] { metro::wait_for_kernels(); });
}
