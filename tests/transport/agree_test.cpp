#include "transport/agree.hpp"
#include "support/expect_error.hpp"
#include "transport/host_name.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <stdexcept>

using metro::AgreedError;
using metro::Error;
using metro::ExitCode;

namespace {

constexpr double timeout_s = 60.0;

// The AgreedError that `work` throws; a failure of the test if it throws none.
template <class F>
AgreedError agreed_error(const F& work) {
  try {
    work();
  } catch (const AgreedError& error) {
    return error;
  }
  return {ExitCode::done, "nothing was thrown"};
}

std::string text_of(std::int64_t value) {
  return std::to_string(value);
}

}  // namespace

TEST_CASE("agree does nothing when no rank fails") {
  const auto transport = metro::make_mpi_transport(timeout_s);
  bool ran = false;

  CHECK_NOTHROW(metro::agree(*transport, [&] { ran = true; }));

  CHECK(ran);
}

TEST_CASE("the error of one rank reaches all ranks, with its rank and host when others did not fail") {
  const auto transport = metro::make_mpi_transport(timeout_s);
  for (std::int64_t failing = 0; failing < transport->size(); ++failing) {
    const auto work = [&] {
      if (transport->rank() == failing) {
        throw Error(ExitCode::checkpoint, "tensor " + text_of(failing) + " is damaged");
      }
    };

    const AgreedError error = agreed_error([&] { metro::agree(*transport, work); });

    const std::string prefix =
        transport->size() == 1 ? "" : "rank " + text_of(failing) + " (" + metro::host_name() + "): ";
    CHECK(error.what() == prefix + "tensor " + text_of(failing) + " is damaged");
    CHECK(error.exit_code() == ExitCode::checkpoint);
  }
}

TEST_CASE("of ranks that fail differently the lowest is heard") {
  const auto transport = metro::make_mpi_transport(timeout_s);
  const auto work = [&] {
    if (transport->rank() > 0 || transport->size() == 1) {
      throw Error(transport->rank() == 1 ? ExitCode::input : ExitCode::usage, "from " + text_of(transport->rank()));
    }
  };

  const AgreedError error = agreed_error([&] { metro::agree(*transport, work); });

  const bool alone = transport->size() == 1;
  CHECK(error.what() == (alone ? "from 0" : "rank 1 (" + metro::host_name() + "): from 1"));
  CHECK(error.exit_code() == (alone ? ExitCode::usage : ExitCode::input));
}

TEST_CASE("an error that all ranks share has no prefix") {
  const auto transport = metro::make_mpi_transport(timeout_s);

  const AgreedError error =
      agreed_error([&] { metro::agree(*transport, [] { throw Error(ExitCode::usage, "kv.memory = 0"); }); });

  CHECK(std::string(error.what()) == "kv.memory = 0");
  CHECK(error.exit_code() == ExitCode::usage);
}

TEST_CASE("ranks can agree again after an error") {
  const auto transport = metro::make_mpi_transport(timeout_s);
  agreed_error([&] { metro::agree(*transport, [] { throw Error(ExitCode::usage, "first"); }); });

  CHECK_NOTHROW(metro::agree(*transport, [] {}));
  CHECK(metro::from_rank_0(*transport, [] { return std::string("second"); }) == "second");
}

TEST_CASE("the result of rank 0 reaches all ranks, also empty, long or with zeros in it") {
  const auto transport = metro::make_mpi_transport(timeout_s);
  for (const std::string& text : {std::string(), std::string("a\0b\n", 4), std::string(100000, 'x')}) {
    int num_runs = 0;

    const std::string result = metro::from_rank_0(*transport, [&] {
      ++num_runs;
      return text;
    });

    CHECK(result == text);
    CHECK(num_runs == (transport->rank() == 0 ? 1 : 0));
  }
}

TEST_CASE("an error of rank 0 on behalf of all reaches all ranks without a prefix") {
  const auto transport = metro::make_mpi_transport(timeout_s);

  const AgreedError error = agreed_error([&] {
    metro::from_rank_0(*transport, []() -> std::string { throw Error(ExitCode::input, "p.jsonl line 2: empty"); });
  });

  CHECK(std::string(error.what()) == "p.jsonl line 2: empty");
  CHECK(error.exit_code() == ExitCode::input);
}

TEST_CASE("equal texts pass require_same") {
  const auto transport = metro::make_mpi_transport(timeout_s);

  CHECK_NOTHROW(metro::require_same(*transport, "deck", ""));
  CHECK_NOTHROW(metro::require_same(*transport, "deck", std::string(5000, 'd')));
}

TEST_CASE("require_same names the ranks that differ from rank 0 and the first line that does") {
  const auto transport = metro::make_mpi_transport(timeout_s);
  if (transport->size() < 2) {
    return;
  }
  const bool odd = transport->rank() % 2 == 1;
  const std::string text = std::string("[run]\nthreads = ") + (odd ? "2" : "1") + "\ntimeout_s = 60\n";

  const AgreedError error = agreed_error([&] { metro::require_same(*transport, "deck", text); });

  std::string odd_ranks;
  for (std::int64_t r = 1; r < transport->size(); r += 2) {
    odd_ranks += (odd_ranks.empty() ? "" : ", ") + text_of(r);
  }
  const std::string who = transport->size() <= 3 ? "rank 1 differs" : "ranks " + odd_ranks + " differ";
  CHECK(std::string(error.what()) == "the deck is not the same on all ranks: " + who +
                                         " from rank 0; line 2: \"threads = 1\" on rank 0, \"threads = 2\" on rank 1");
  CHECK(error.exit_code() == ExitCode::internal);
}
