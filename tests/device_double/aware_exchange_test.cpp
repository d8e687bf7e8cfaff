// The exchange of memory of devices by a CUDA-aware MPI, on the doubles: every collective, what MPI is given, and what
// happens if MPI is not aware.
#include "device_double/device_double.hpp"
#include "device_double/mpi_double.hpp"
#include "support/expect_error.hpp"
#include "transport/exchange_checks.hpp"
#include "transport/mpi_device_memory.hpp"
#include "transport/mpi_transport.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <vector>

using metro::Buffer;
using metro::ExitCode;
using metro::test::check_all_gather;
using metro::test::check_all_to_all;
namespace mpi_double = metro::mpi_double;

namespace {

constexpr double timeout_s = 60.0;

// The ranks of the job with an MPI that is aware.
struct Job {
  explicit Job(std::int64_t piece_bytes = metro::MpiTransport::default_piece_bytes)
      : transport(timeout_s, piece_bytes) {
    mpi_double::be_aware(true);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() { mpi_double::be_aware(false); }
  std::int64_t size() const { return transport.size(); }

  metro::MpiTransport transport;
  std::unique_ptr<metro::DeviceExchange> exchange = metro::make_aware_exchange(transport);
};

void check_all_sizes(metro::DeviceExchange& exchange) {
  check_all_gather(exchange, [](auto) { return 4096; });
  check_all_gather(exchange, [](auto rank) { return 100 * rank + 3; });
  check_all_gather(exchange, [](auto rank) { return rank % 2 == 0 ? 5 : 0; });
  check_all_gather(exchange, [](auto) { return 0; });
  check_all_gather(exchange, [&](auto rank) { return rank == exchange.size() - 1 ? 200 : 0; });
  check_all_to_all(exchange, [](auto from, auto to) { return 50 * from + to; });
  check_all_to_all(exchange, [](auto from, auto to) { return from < to ? 90 : 0; });
  check_all_to_all(exchange, [](auto from, auto) { return from == 0 ? 70 : 0; });
  check_all_to_all(exchange, [](auto, auto to) { return to == 0 ? 70 : 0; });
  check_all_to_all(exchange, [](auto from, auto to) { return from == to ? 70 : 0; });
  check_all_to_all(exchange, [](auto, auto) { return 0; });
}

}  // namespace

TEST_CASE("a CUDA-aware MPI moves messages of all sizes from device to device") {
  Job job;
  CHECK(job.exchange->name() == "mpi, device memory");
  CHECK(!job.exchange->uses_host_memory());

  check_all_sizes(*job.exchange);
}

TEST_CASE("messages of device memory that are longer than MPI takes go in pieces") {
  Job job(64);

  check_all_sizes(*job.exchange);
}

TEST_CASE("exchanges of device memory in a row do not mix, nor with those of the host") {
  Job job;

  for (std::int64_t round = 0; round < 20; ++round) {
    check_all_to_all(*job.exchange, [&](auto from, auto to) { return (from * 5 + to * 3 + round * 11) % 40; });
    check_all_to_all(job.transport, [&](auto from, auto to) { return (from * 3 + to * 5 + round) % 30; });
    check_all_gather(*job.exchange, [&](auto rank) { return (rank * 7 + round) % 30; });
  }
}

TEST_CASE("MPI sends what the queue has written before, and the queue sees what MPI has received") {
  Job job;
  const std::int64_t rank = job.transport.rank();
  const std::vector<std::int64_t> bytes(static_cast<std::size_t>(job.size()), 1);
  const Buffer<std::byte> source = metro::test::buffer_of({static_cast<std::byte>(rank + 1)});
  const Buffer<std::byte> own("own", 1);
  const Buffer<std::byte> gathered("gathered", job.size());
  const Buffer<std::byte> turned("turned", job.size());

  metro::queue_copy(own.data(), source.data(), 1);
  job.exchange->all_gather(metro::test::all_of(own), metro::test::all_of(gathered), bytes);
  job.exchange->all_to_all(metro::test::all_of(gathered), bytes, metro::test::all_of(turned), bytes);

  // Rank r sends byte i of 1, 2, ... to rank i: each rank gets its own number from everybody.
  CHECK(metro::test::bytes_of(turned) ==
        std::vector<std::byte>(static_cast<std::size_t>(job.size()), static_cast<std::byte>(rank + 1)));
}

TEST_CASE("MPI gets device memory itself, once for each message that is not empty") {
  Job job;
  const std::int64_t before = mpi_double::num_device_messages();

  check_all_gather(*job.exchange, [](auto) { return 8; });
  const std::int64_t gathered = mpi_double::num_device_messages() - before;
  check_all_to_all(*job.exchange, [](auto from, auto to) { return from == to ? 70 : 0; });

  CHECK(gathered == 2 * (job.size() - 1));
  CHECK(mpi_double::num_device_messages() - before == gathered);
}

TEST_CASE("an MPI that is not aware refuses device memory") {
  const auto exchange_of_unaware = [] {
    metro::MpiTransport transport(timeout_s);
    mpi_double::be_aware(false);
    check_all_gather(*metro::make_aware_exchange(transport), [](auto) { return 8; });
  };

  if (metro::MpiTransport(timeout_s).size() == 1) {
    CHECK_NOTHROW(exchange_of_unaware());  // no message
  } else {
    metro::test::expect_error(ExitCode::machine, {"MPI_Irecv", "MPI_ERR_BUFFER"}, exchange_of_unaware);
  }
}

TEST_CASE("MPI counts as aware where that of every rank is") {
  Job job;

  CHECK(metro::mpi_takes_device_memory(job.transport));

  mpi_double::be_aware(job.transport.rank() != job.size() - 1);
  CHECK(!metro::mpi_takes_device_memory(job.transport));
}
