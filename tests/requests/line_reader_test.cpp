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

TEST_CASE("files are read one after the other and no line goes on in the next file") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("a"), "a1\na2");
  metro::write_file_atomically(folder.file("empty"), "");
  metro::write_file_atomically(folder.file("b"), "b1\n\nb3\n");
  LineReader reader({folder.file("a"), folder.file("empty"), folder.file("b")}, 10);
  std::vector<std::string> places;
  std::string line;

  while (reader.next(line) == Outcome::line) {
    const std::string file = reader.path().substr(folder.path().string().size());
    places.push_back(line + " " + file + ":" + std::to_string(reader.line_in_file()) + " of " +
                     std::to_string(reader.num_lines()));
  }

  CHECK(places == Lines{"a1 /a:1 of 1", "a2 /a:2 of 2", "b1 /b:1 of 3", " /b:2 of 4", "b3 /b:3 of 5"});
}

TEST_CASE("a file that is missing is named before the first is read") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("a"), "a1\n");

  expect_error(ExitCode::input, {"cannot open", "/none", "No such file"}, [&] {
    LineReader({folder.file("a"), folder.file("none")}, 10);
  });
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
