// The line of a roll call, from the reports of those that answered.
#include "transport/roll_call.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <numeric>
#include <vector>

using metro::make_report;
using metro::PeerProcess;
using metro::Peers;
using metro::ranks_text;
using metro::Report;
using metro::roll_call_text;

namespace {

std::vector<std::int64_t> up_to(std::int64_t size) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Four ranks to a host, all on hosts other than this one.
Peers peers_of(std::int64_t size) {
  std::vector<PeerProcess> peers(static_cast<std::size_t>(size));
  for (std::int64_t r = 0; r < size; ++r) {
    const std::string host = "node" + std::to_string(r / 4);
    host.copy(peers[static_cast<std::size_t>(r)].host.data(), 63);
  }
  return Peers(0, std::move(peers));
}

Report waits(std::int64_t rank, double waited_s = 60.0) {
  return make_report(rank, 17, waited_s, "all-gather", "combine");
}

std::string text_of(const std::vector<Report>& reports, std::int64_t size, const std::string& why = "") {
  return roll_call_text(reports, up_to(size), peers_of(size), why);
}

}  // namespace

TEST_CASE("ranks are listed as runs, and many runs are cut") {
  CHECK(ranks_text(std::vector<std::int64_t>{3}) == "rank 3");
  CHECK(ranks_text(std::vector<std::int64_t>{0, 1}) == "ranks 0 and 1");
  CHECK(ranks_text(std::vector<std::int64_t>{0, 1, 3}) == "ranks 0, 1 and 3");
  CHECK(ranks_text(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 8, 9, 10}) == "ranks 0-6 and 8-10");
  CHECK(ranks_text(std::vector<std::int64_t>{0, 2, 4, 6, 8, 10, 12, 14}) == "ranks 0, 2, 4, 6, 8, 10 and 2 more");
}

TEST_CASE("the rank that does not answer is named, with its host and with what the others wait in") {
  CHECK(
      text_of({waits(3), waits(0), waits(1, 59.6)}, 4) ==
      "rank 2 (node0) does not answer: ranks 0, 1 and 3 have waited 60 s for it in all-gather during combine; stopped, "
      "or a step takes longer than run.timeout_s");
}

TEST_CASE("several ranks that do not answer are named with all their hosts") {
  CHECK(text_of({waits(0, 0.5)}, 6) ==
        "ranks 1-5 (node0 and node1) do not answer: rank 0 has waited 0.5 s for them in all-gather during combine; "
        "stopped, or a step takes longer than run.timeout_s");
}

TEST_CASE("ranks that wait in different places are listed apart, also when one does not answer") {
  const std::vector<Report> reports{waits(0), make_report(1, 17, 3.25, "barrier", "loading")};

  CHECK(text_of(reports, 3) ==
        "rank 2 (node0) does not answer: rank 0 has waited 60 s for it in all-gather during combine and rank 1 has "
        "waited "
        "3.2 s for it in barrier during loading; stopped, or a step takes longer than run.timeout_s");
}

TEST_CASE("when all ranks answer from different operations the number of each is given") {
  const std::vector<Report> reports{waits(0), waits(2), make_report(1, 18, 60.0, "all-gather", "combine")};

  CHECK(
      text_of(reports, 3) ==
      "all ranks answer, but from different operations: ranks 0 and 2 have waited 60 s in all-gather 17 during combine "
      "and rank 1 has waited 60 s in all-gather 18 during combine; a rank came too late (run.timeout_s), or this is a "
      "bug");
}

TEST_CASE("a rank that has only just come is late") {
  CHECK(text_of({waits(0), waits(1, 0.1), waits(2)}, 3) ==
        "rank 1 (node0) came too late: others had waited 60 s in all-gather during combine; a step takes longer than "
        "run.timeout_s");
}

TEST_CASE("when all have waited for the same, messages were lost") {
  CHECK(
      text_of({waits(0), waits(1)}, 2) ==
      "all ranks answer: ranks 0 and 1 have waited 60 s in all-gather during combine; messages between them were lost");
}

TEST_CASE("a rank that waits for its own device is named as the one that the others wait for") {
  const auto busy = [](std::int64_t rank) { return make_report(rank, 7, 60.0, metro::work_of_device, "combine"); };

  CHECK(
      text_of({waits(0), busy(1)}, 2) ==
      "rank 1 (node0) waits for its device: rank 0 has waited 60 s in all-gather during combine and rank 1 has waited "
      "60 s in work of the device during combine; it hangs, or a step takes longer than run.timeout_s");
  CHECK(text_of({busy(0), busy(1)}, 2) ==
        "ranks 0 and 1 (node0) wait for their devices: ranks 0 and 1 have waited 60 s in work of the device during "
        "combine; they hang, or a step takes longer than run.timeout_s");
}

TEST_CASE("what made the ranks give up is said at the end") {
  CHECK(
      text_of({waits(0, 5.0)}, 2, "SIGTERM came") ==
      "rank 1 (node0) does not answer: rank 0 has waited 5.0 s for it in all-gather during combine; stopped, or a step "
      "takes longer than run.timeout_s; SIGTERM came");
}

TEST_CASE("the line of a large job stays short") {
  constexpr std::int64_t size = 4096;
  std::vector<Report> reports;
  for (std::int64_t r = 0; r < size; r += 8) {
    reports.push_back(make_report(r, r, 60.0, "all-gather", std::string(200, 'x').c_str()));
  }

  const std::string text = text_of(reports, size);

  CHECK(text.find(
            "ranks 1-7, 9-15, 17-23, 25-31, 33-39, 41-47 and 3542 more (node0, node1, node2, node3, node4, node5 and "
            "1018 more) do not answer") == 0);
  CHECK(text.find(" and others at 506 more places;") != std::string::npos);
  CHECK(text.size() < 2000);
}
