#include "requests/line_reader.hpp"

#include "base/file.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

using metro::ExitCode;
using metro::LineReader;
using metro::test::expect_error;
using metro::test::ScratchFolder;
using Outcome = metro::LineReader::Outcome;

namespace {

// The lines of a file with this content; "<too long>" for those that are.
std::vector<std::string> lines_of(const std::string& content, std::int64_t max_line_bytes) {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("in"), content);
  LineReader reader(folder.file("in"), max_line_bytes);
  std::vector<std::string> lines;
  std::string line;
  for (Outcome outcome = reader.next(line); outcome != Outcome::end; outcome = reader.next(line)) {
    lines.push_back(outcome == Outcome::too_long ? "<too long>" : line);
  }
  CHECK(reader.num_lines() == static_cast<std::int64_t>(lines.size()));
  return lines;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("lines end with a newline, with a carriage return and newline, or with the file") {
  CHECK(lines_of("", 10).empty());
  CHECK(lines_of("a\nb\n", 10) == Lines{"a", "b"});
  CHECK(lines_of("a\r\n\r\n\nb\rc", 10) == Lines{"a", "", "", "b\rc"});
  CHECK(lines_of("last\r", 10) == Lines{"last"});
}

TEST_CASE("a line above the limit is skipped and the next one is read") {
  CHECK(lines_of("12345\n123456\n1\n", 5) == Lines{"12345", "<too long>", "1"});
  CHECK(lines_of("12345\r\n123456\r\n1234567\r\n", 5) == Lines{"12345", "<too long>", "<too long>"});
  CHECK(lines_of("1\n123456", 5) == Lines{"1", "<too long>"});
}

TEST_CASE("lines longer than the read buffer come out whole") {
  const std::string longer(700'001, 'x');

  CHECK(lines_of("a\n" + longer + "\nb", 1'000'000) == Lines{"a", longer, "b"});
  CHECK(lines_of("a\n" + longer + "\nb", 600'000) == Lines{"a", "<too long>", "b"});
}

TEST_CASE("an input that cannot be opened is named with the reason") {
  const ScratchFolder folder;

  expect_error(ExitCode::input, {"cannot open", "/none", "No such file"}, [&] { LineReader(folder.file("none"), 10); });
  expect_error(ExitCode::input, {"cannot open", "it is a folder"}, [&] { LineReader(folder.path().string(), 10); });
}

TEST_CASE("an input that cannot be read on is an error with the line") {
  // The memory of a process opens for reading, but its first page is not mapped.
  expect_error(ExitCode::input, {"cannot read /proc/self/mem after line 0", "error"}, [] {
    LineReader reader("/proc/self/mem", 10);
    std::string line;
    reader.next(line);
  });
}
