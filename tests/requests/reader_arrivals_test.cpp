// When requests arrive: from their lines or from a trace.
#include "base/file.hpp"
#include "requests/reader_harness.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

using metro::ExitCode;
using metro::RequestInput;
using metro::RequestReader;
using metro::test::expect_error;
using metro::test::read_all;
using metro::test::ReadResult;
using metro::test::ScratchFolder;
using metro::test::small_defaults;
using Arrivals = std::vector<std::optional<double>>;

namespace {

// A reader of these lines, with this trace of arrivals if it is not empty.
struct Fixture {
  Fixture(const std::string& lines, const std::string& trace, double scale = 1.0) {
    metro::write_file_atomically(folder.file("in"), lines);
    if (!trace.empty()) {
      metro::write_file_atomically(folder.file("trace"), trace);
    }
    reader.emplace(RequestInput{{folder.file("in")}, trace.empty() ? "" : folder.file("trace"), scale},
                   small_defaults(), nullptr);
  }
  ScratchFolder folder;
  std::optional<RequestReader> reader;
};

Arrivals arrivals_of(const ReadResult& result) {
  Arrivals arrivals;
  for (const auto& accepted : result.accepted) {
    arrivals.push_back(accepted.origin.arrival_s);
  }
  return arrivals;
}

std::string line_at(const std::string& arrival_s) {
  return "{\"prompt\": [1], \"arrival_s\": " + arrival_s + "}\n";
}

const std::string plain = "{\"prompt\": [1]}\n";

}  // namespace

TEST_CASE("without any word on arrivals requests have no arrival time") {
  Fixture fixture(plain + plain, "", 3.0);

  CHECK(arrivals_of(read_all(*fixture.reader)) == Arrivals{std::nullopt, std::nullopt});
}

TEST_CASE("a line of either form may say when it arrives, one that does not arrives with the line before") {
  Fixture fixture(plain + line_at("0.5") + plain + line_at("null") +
                      "{\"arrival_s\": 2, \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": "
                      "[1]}}\n" +
                      line_at("2"),
                  "");

  CHECK(arrivals_of(read_all(*fixture.reader)) == Arrivals{std::nullopt, 0.5, 0.5, 0.5, 2.0, 2.0});
}

TEST_CASE("all arrival times are multiplied by the scale") {
  Fixture lines(line_at("0.5") + line_at("4"), "", 0.5);
  Fixture trace(plain + plain, "{\"timestamp\": 1000}\n{\"timestamp\": 4000}\n", 0.5);

  CHECK(arrivals_of(read_all(*lines.reader)) == Arrivals{0.25, 2.0});
  CHECK(arrivals_of(read_all(*trace.reader)) == Arrivals{0.0, 1.5});
}

TEST_CASE("every line that is not blank takes a row of the trace, also one that is refused") {
  Fixture fixture(plain + "\nnonsense\n" + plain,
                  "{\"timestamp\": 0}\n{\"timestamp\": 1000}\n{\"timestamp\": 2000}\n{\"timestamp\": 3000}\n");

  CHECK(arrivals_of(read_all(*fixture.reader)) == Arrivals{0.0, 2.0});
  CHECK(fixture.reader->num_behind_trace() == 0);
}

TEST_CASE("lines behind the end of the trace arrive with its last row and are counted") {
  Fixture fixture(plain + plain + plain + plain, "{\"timestamp\": 0}\n{\"timestamp\": 1000}\n");

  CHECK(arrivals_of(read_all(*fixture.reader)) == Arrivals{0.0, 1.0, 1.0, 1.0});
  CHECK(fixture.reader->num_behind_trace() == 2);
}

TEST_CASE("an arrival time that is wrong costs only its line") {
  Fixture fixture(line_at("\"1\"") + line_at("-1") + line_at("2e9") + line_at("3") + line_at("2.5") + line_at("3"), "",
                  0.5);

  const ReadResult result = read_all(*fixture.reader);

  REQUIRE(result.rejected.size() == 4);
  CHECK(result.rejected[0].field == "arrival_s");
  CHECK(result.rejected[0].message == "arrival_s \"1\": a number of seconds from 0 to 1e+09 is expected");
  CHECK(result.rejected[1].message == "arrival_s -1: a number of seconds from 0 to 1e+09 is expected");
  CHECK(result.rejected[2].message == "arrival_s 2000000000.0: a number of seconds from 0 to 1e+09 is expected");
  CHECK(result.rejected[3].message ==
        "arrival_s 2.5: a line before arrives later, at 3; lines must be in the order of their arrival");
  CHECK(arrivals_of(result) == Arrivals{1.5, 1.5});
}

TEST_CASE("a line may not say when it arrives if a trace does") {
  Fixture fixture(line_at("1") + plain, "{\"timestamp\": 0}\n{\"timestamp\": 1000}\n");

  const ReadResult result = read_all(*fixture.reader);

  REQUIRE(result.rejected.size() == 1);
  CHECK(result.rejected[0].message ==
        "arrival_s 1: requests.arrivals = " + fixture.folder.file("trace") + " says when requests arrive");
  CHECK(arrivals_of(result) == Arrivals{1.0});
}

TEST_CASE("a trace that is no trace ends the run, at the start or when its bad row comes") {
  expect_error(ExitCode::input, {"requests.arrivals: ", "/trace:1"}, [] { Fixture(plain, "x\n"); });
  Fixture fixture(plain + plain, "{\"timestamp\": 1}\n{\"timestamp\": 0}\n");

  CHECK(std::holds_alternative<metro::AcceptedLine>(fixture.reader->next()));
  expect_error(ExitCode::input, {"requests.arrivals: ", "/trace:2"}, [&] { fixture.reader->next(); });
}
