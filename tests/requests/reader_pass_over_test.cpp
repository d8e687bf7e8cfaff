// Reading the input again in a run that goes on.
#include "requests/reader_harness.hpp"
#include "support/expect_error.hpp"

#include <optional>

using metro::digest_of;
using metro::EarlierLines;
using metro::ExitCode;
using metro::RequestReader;
using metro::test::expect_error;
using metro::test::read_all;
using metro::test::ReadResult;
using metro::test::ScratchFolder;
using metro::test::small_defaults;

namespace {

const std::vector<std::string> four{R"({"prompt": [1]})", R"({"prompt": 7})", "  ",
                                    R"({"custom_id": "d", "prompt": [4]})"};

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  return text;
}

// Reads `now` after passing over; finished: numbers of lines of `before` that are finished, begun: those in work.
ReadResult go_on(const std::vector<std::string>& before, const std::vector<std::int64_t>& finished,
                 const std::vector<std::int64_t>& begun, const std::vector<std::string>& now) {
  EarlierLines earlier;
  for (const std::int64_t line : finished) {
    earlier.add({line, digest_of(before.at(static_cast<std::size_t>(line - 1)))}, true);
  }
  for (const std::int64_t line : begun) {
    earlier.add({line, digest_of(before.at(static_cast<std::size_t>(line - 1)))}, false);
  }
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("in.jsonl"), text_of(now));
  RequestReader reader(folder.file("in.jsonl"), small_defaults(), nullptr);
  reader.pass_over(earlier, 1.0);
  return read_all(reader);
}

}  // namespace

TEST_CASE("every line comes with its number over all files and the digest of its text") {
  const ReadResult result = metro::test::read_text(text_of(four));

  REQUIRE(result.accepted.size() == 2);
  REQUIRE(result.rejected.size() == 1);
  CHECK((result.accepted[0].origin.input_line == metro::InputLine{1, digest_of(four[0])}));
  CHECK((result.rejected[0].input_line == metro::InputLine{2, digest_of(four[1])}));
  CHECK((result.accepted[1].origin.input_line == metro::InputLine{4, digest_of(four[3])}));
}

TEST_CASE("lines that are finished do not come again, all others do as if nothing had been before") {
  const ReadResult result = go_on(four, {1, 2}, {4}, four);

  REQUIRE(result.accepted.size() == 1);
  CHECK(result.accepted[0].origin.custom_id == "d");
  CHECK(result.accepted[0].origin.line == 4);
  CHECK(result.rejected.empty());

  const ReadResult later = go_on(four, {4}, {}, four);  // as after a crash of the machine
  REQUIRE(later.accepted.size() == 1);
  CHECK(later.accepted[0].origin.custom_id == "line-1");
  REQUIRE(later.rejected.size() == 1);
  CHECK(later.rejected[0].custom_id == "line-2");
}

TEST_CASE("lines that are new behind those that were read are read too") {
  std::vector<std::string> more = four;
  more.push_back(R"({"prompt": [5]})");

  const ReadResult result = go_on(four, {1, 2, 4}, {}, more);

  REQUIRE(result.accepted.size() == 1);
  CHECK(result.accepted[0].origin.custom_id == "line-5");
}

TEST_CASE("a line that is not what it was ends the run, finished or in work") {
  for (const bool is_finished : {true, false}) {
    std::vector<std::string> changed = four;
    changed[3] = R"({"custom_id": "e", "prompt": [4]})";
    const std::vector<std::int64_t> none, last{4};
    expect_error(ExitCode::usage,
                 {"requests.input: line 4 of", "in.jsonl is not what it was", metro::to_hex(digest_of(four[3])).c_str(),
                  metro::to_hex(digest_of(changed[3])).c_str(), "--overwrite"},
                 [&] { go_on(four, is_finished ? last : none, is_finished ? none : last, changed); });
    changed[3] = "";
    expect_error(ExitCode::usage, {"line 4 of"},
                 [&] { go_on(four, is_finished ? last : none, is_finished ? none : last, changed); });
  }
}

TEST_CASE("a line that was read but not begun may change") {
  std::vector<std::string> changed = four;
  changed[0] = R"({"prompt": [9]})";

  CHECK(go_on(four, {4}, {}, changed).accepted.at(0).samples.at(0).prompt == std::vector<std::int32_t>{9});
}

TEST_CASE("an input that has become shorter ends the run") {
  expect_error(ExitCode::usage, {"in.jsonl ends the input after 1 lines, the run has read 4 before"}, [&] {
    go_on(four, {1, 4}, {}, {four[0]});
  });
}

TEST_CASE("what later lines depend on is the same with lines passed over") {
  const std::vector<std::string> lines{R"({"prompt": [1], "arrival_s": 5})", R"({"prompt": [2]})",
                                       R"({"prompt": [3], "arrival_s": 4})", R"({"prompt": [4]})"};

  const ReadResult result = go_on(lines, {1}, {}, lines);

  REQUIRE(result.accepted.size() == 2);
  CHECK(result.accepted[0].origin.arrival_s == 5.0);
  CHECK(result.accepted[1].origin.arrival_s == 5.0);
  REQUIRE(result.rejected.size() == 1);
  CHECK(result.rejected[0].field == "arrival_s");
}
