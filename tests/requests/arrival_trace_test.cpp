#include "requests/arrival_trace.hpp"

#include "base/file.hpp"
#include "requests/packed_text.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

using metro::ArrivalTrace;
using metro::ExitCode;
using metro::parse_timestamp;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

std::vector<double> times_of(const std::string& path) {
  ArrivalTrace trace(path);
  std::vector<double> times;
  while (const auto time_s = trace.next_s()) {
    times.push_back(*time_s);
  }
  CHECK(trace.num_rows() == static_cast<std::int64_t>(times.size()));
  return times;
}

std::vector<double> times_in(const std::string& content) {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("trace"), content);
  return times_of(folder.file("trace"));
}

void expect_refusal(const std::string& content, std::initializer_list<const char*> texts) {
  CAPTURE(content);
  expect_error(ExitCode::input, texts, [&] { times_in(content); });
}

void check_close(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i] == Approx(expected[i]).margin(1e-6));
  }
}

}  // namespace

TEST_CASE("the Azure trace gives seconds from its first row") {
  check_close(
      times_of(METRO_TEST_DATA "/arrivals/azure/code_first12.csv"),
      {0.0, 0.052, 0.098189, 0.140684, 0.444994, 0.539187, 0.698571, 1.016041, 1.299312, 1.299337, 1.398922, 1.399087});
}

TEST_CASE("the Mooncake trace gives milliseconds from its first row") {
  const std::vector<double> times = times_of(METRO_TEST_DATA "/arrivals/mooncake/conversation_first12.jsonl");

  check_close(times, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3});
}

TEST_CASE("the column of time may stand anywhere, lines may be blank, ends of lines those of Windows") {
  check_close(times_in("Model,TIMESTAMP\r\na,2024-05-10 00:00:59.5+00:00\r\n\r\na,2024-05-10 00:01:00+00:00\r\n"),
              {0.0, 0.5});
  check_close(times_in("\n{\"timestamp\": 1500.5}\n\n{\"timestamp\": 2000}\n"), {0.0, 0.4995});
  CHECK(times_in("TIMESTAMP\n").empty());
}

TEST_CASE("a trace may be compressed") {
  check_close(times_in(metro::test::gzipped("TIMESTAMP\n2024-01-01 00:00:00\n2024-01-01 00:00:02\n")), {0.0, 2.0});
  check_close(times_in(metro::test::zstd_packed("{\"timestamp\": 0}\n{\"timestamp\": 7000}\n")), {0.0, 7.0});
}

TEST_CASE("timestamps are seconds since 1970, with fraction and offset") {
  CHECK(parse_timestamp("1970-01-01 00:00:00") == 0.0);
  CHECK(parse_timestamp("2000-02-29T12:00:00Z") == 951825600.0);
  CHECK(parse_timestamp("2023-11-16 18:17:03.5") == 1700158623.5);
  CHECK(parse_timestamp("2023-11-16 20:17:03.25+02:00") == 1700158623.25);
  CHECK(parse_timestamp("2023-11-16 12:47:03-05:30") == 1700158623.0);
  CHECK(parse_timestamp("2023-11-16 18:17:03.123456789") == Approx(1700158623.123456789).margin(1e-6));
}

TEST_CASE("what is no timestamp is recognised") {
  for (const char* text : {"", "2023", "2023-11-16", "2023-11-16 18:17", "2023-13-16 18:17:03", "2023-02-29 18:17:03",
                           "2023-11-16 24:17:03", "2023-11-16 18:60:03", "2023-11-16 18:17:61", "2023-11-16 18:17:03.",
                           "2023-11-16 18:17:03.1234567890", "2023-11-16 18:17:03 ", "2023-11-16 18:17:03+0200",
                           "2023-11-16 18:17:03+24:00", "2023-11-16 18:17:03x", "2023/11/16 18:17:03",
                           " 2023-11-16 18:17:03", "-023-11-16 18:17:03", "2023-11-16_18:17:03"}) {
    CAPTURE(text);
    CHECK(!parse_timestamp(text));
  }
}

TEST_CASE("a file that is no trace is refused with what a trace is") {
  expect_refusal("", {"requests.arrivals: ", "/trace:0: it is empty", "TIMESTAMP", "milliseconds"});
  expect_refusal("time,tokens\n1,2\n", {"/trace:1: 'time,tokens'", "a column TIMESTAMP"});
  expect_refusal("TIMESTAMPS\n", {"'TIMESTAMPS'"});
  expect_error(ExitCode::input, {"cannot open /nowhere.csv: No such file"}, [] { ArrivalTrace("/nowhere.csv"); });
}

TEST_CASE("a bad row is refused with its line and what is expected") {
  expect_refusal("A,TIMESTAMP\n1,2024-01-01 00:00:00\n1,noon\n",
                 {"/trace:3: TIMESTAMP 'noon': a time such as 2023-11-16 18:17:03.9799600"});
  expect_refusal("A,TIMESTAMP\n1\n", {"/trace:2: TIMESTAMP ''"});
  expect_refusal("{\"timestamp\": 0}\n{\"time\": 1}\n", {"/trace:2: timestamp: missing", "milliseconds"});
  expect_refusal("{\"timestamp\": 0}\n[1]\n", {"/trace:2: timestamp: missing"});
  expect_refusal("{\"timestamp\": \"1\"}\n", {"/trace:1: timestamp \"1\": a number of milliseconds"});
  expect_refusal("{\"timestamp\": 1e16}\n", {"/trace:1: timestamp 1e+16", "at most 1e+15"});
  expect_refusal("{\"timestamp\": \n", {"/trace:1: ", "parse error"});
  expect_refusal("TIMESTAMP\n" + std::string((1 << 20) + 1, 'x') + "\n", {"/trace:2: the line is longer than 1048576"});
}

TEST_CASE("rows that go back in time are refused") {
  expect_refusal("{\"timestamp\": 5000}\n{\"timestamp\": 5000}\n{\"timestamp\": 4000}\n",
                 {"/trace:3: the request arrives 1 s before the one above", "in the order of time"});
}
