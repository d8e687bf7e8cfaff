// Compressed input, through LineReader.
#include "base/file.hpp"
#include "requests/line_reader.hpp"
#include "requests/packed_text.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

using metro::Error;
using metro::ExitCode;
using metro::LineReader;
using metro::test::expect_error;
using metro::test::gzipped;
using metro::test::ScratchFolder;
using metro::test::zstd_packed;
using Outcome = metro::LineReader::Outcome;
using Lines = std::vector<std::string>;

namespace {

Lines lines_of(const std::string& content) {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("in.jsonl"), content);
  LineReader reader(folder.file("in.jsonl"), 2'000'000);
  Lines lines;
  std::string line;
  while (reader.next(line) == Outcome::line) {
    lines.push_back(line);
  }
  return lines;
}

void expect_refusal(const std::string& content, std::initializer_list<const char*> texts) {
  expect_error(ExitCode::input, texts, [&] { lines_of(content); });
}

// 200,000 lines that do not compress too well: more than every buffer on the way, packed and unpacked.
std::string long_text() {
  std::string text;
  std::uint64_t state = 1;
  for (int i = 0; i < 200'000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    text += std::to_string(state >> 33U) + "\n";
  }
  return text;
}

const std::string zstd_skippable = std::string("\x5a\x2a\x4d\x18\x03\x00\x00\x00", 8) + "abc";

}  // namespace

TEST_CASE("gzip and zstd are known by their content, whatever the name of the file") {
  CHECK(lines_of(gzipped("a\nb\r\n\nc")) == Lines{"a", "b", "", "c"});
  CHECK(lines_of(zstd_packed("a\nb\r\n\nc")) == Lines{"a", "b", "", "c"});
}

TEST_CASE("compressed files without content have no lines") {
  CHECK(lines_of(gzipped("")).empty());
  CHECK(lines_of(zstd_packed("")).empty());
  CHECK(lines_of(zstd_skippable).empty());
}

TEST_CASE("compressed text longer than every buffer comes out whole") {
  const std::string text = long_text();
  const Lines expected = lines_of(text);

  REQUIRE(expected.size() == 200'000);
  CHECK(lines_of(gzipped(text)) == expected);
  CHECK(lines_of(zstd_packed(text)) == expected);
  // So well compressed that one packed buffer gives many unpacked ones.
  const std::string zeros(1'900'000, '0');
  CHECK(lines_of(gzipped(zeros + "\nx")) == Lines{zeros, "x"});
  CHECK(lines_of(zstd_packed(zeros + "\nx")) == Lines{zeros, "x"});
}

TEST_CASE("what was compressed in pieces is one text") {
  CHECK(lines_of(gzipped("a\nb") + gzipped("") + gzipped("c\nd\n")) == Lines{"a", "bc", "d"});
  CHECK(lines_of(zstd_packed("a\nb") + zstd_packed("") + zstd_packed("c\nd\n")) == Lines{"a", "bc", "d"});
  CHECK(lines_of(zstd_skippable + zstd_packed("a\n") + zstd_skippable + zstd_packed("b")) == Lines{"a", "b"});
}

TEST_CASE("text that begins like compressed data but is none is text") {
  CHECK(lines_of("\x1f") == Lines{"\x1f"});
  CHECK(lines_of("(") == Lines{"("});
  CHECK(lines_of("\x28\xb5\x2f\nx") == Lines{"\x28\xb5\x2f", "x"});
  CHECK(lines_of("PROMPT") == Lines{"PROMPT"});
  CHECK(lines_of("P*M") == Lines{"P*M"});
}

TEST_CASE("compressed input that ends too early is an error, wherever it is cut") {
  const std::string text = "{\"prompt\": [1, 2]}\n{\"prompt\": [3, 4]}\n";
  const std::string gzip = gzipped(text);
  const std::string zstd = zstd_packed(text);

  for (std::size_t length = 2; length < gzip.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(lines_of(gzip.substr(0, length)), Error);
  }
  for (std::size_t length = 4; length < zstd.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(lines_of(zstd.substr(0, length)), Error);
  }
  const std::string where = "after byte " + std::to_string(gzip.size() - 1) + " of the file";
  expect_refusal(gzip.substr(0, gzip.size() - 1),
                 {"/in.jsonl after line 2: the gzip data end too early", where.c_str()});
  expect_refusal(gzip + gzip.substr(0, 5), {"/in.jsonl after line 2: the gzip data end too early"});
  expect_refusal(zstd.substr(0, zstd.size() - 1), {"the zstd data end too early", "of the file"});
  expect_refusal(zstd + zstd.substr(0, 9), {"/in.jsonl after line 2: the zstd data end too early"});
}

TEST_CASE("damaged compressed input is an error with its place") {
  const std::string text = long_text();
  std::string gzip = gzipped(text);
  std::string zstd = zstd_packed(text);
  std::string checksum = gzip;
  gzip[gzip.size() / 2] = static_cast<char>(gzip[gzip.size() / 2] ^ 0xff);
  zstd[zstd.size() / 2] = static_cast<char>(zstd[zstd.size() / 2] ^ 0xff);
  checksum[checksum.size() - 8] = static_cast<char>(checksum[checksum.size() - 8] ^ 1);

  expect_refusal(gzip, {"cannot read", "/in.jsonl after line", "the gzip data are damaged at or before byte"});
  expect_refusal(checksum, {"the gzip data are damaged", "incorrect data check"});
  expect_refusal(zstd, {"cannot read", "/in.jsonl after line", "the zstd data are damaged"});
}

TEST_CASE("bytes behind compressed data are an error") {
  expect_refusal(gzipped("a\n") + "b\n", {"after line 1: the gzip data are damaged", "incorrect header check"});
  expect_refusal(zstd_packed("a\n") + "bcde\n",
                 {"after line 1: the zstd data are damaged", "Unknown frame descriptor"});
}

TEST_CASE("zstd data that need more than 128 MiB to be unpacked are refused") {
  CHECK(lines_of(zstd_packed("a\n", 27)) == Lines{"a"});
  expect_refusal(zstd_packed("a\n", 28), {"damaged or not supported", "too much memory"});
}
