// Input from another process: what is not there yet is not waited for without end.
#include "requests/line_reader.hpp"
#include "requests/packed_text.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

using metro::LineReader;
using metro::test::gzipped;
using metro::test::ScratchFolder;
using metro::test::zstd_packed;
using Outcome = metro::LineReader::Outcome;

namespace {

// A pipe with both ends in this process; the reader knows it by a path.
class Pipe {
 public:
  Pipe() { REQUIRE(::pipe(ends_.data()) == 0); }
  ~Pipe() {
    close_writing();
    ::close(ends_[0]);
  }
  std::string path() const { return "/dev/fd/" + std::to_string(ends_[0]); }
  void write(std::string_view text) {
    REQUIRE(::write(ends_[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void close_writing() {
    if (ends_[1] >= 0) {
      ::close(ends_[1]);
      ends_[1] = -1;
    }
  }

 private:
  std::array<int, 2> ends_{};
};

void expect_lines_in_pieces(const std::string& packed) {
  Pipe pipe;
  LineReader reader(pipe.path(), 100);
  std::string line;

  CHECK(reader.next(line, 0.0) == Outcome::waiting);
  for (std::size_t i = 0; i + 1 < packed.size(); ++i) {
    pipe.write(packed.substr(i, 1));
    const Outcome outcome = reader.next(line, 0.0);
    CHECK((outcome == Outcome::waiting || (outcome == Outcome::line && line == "first")));
  }
  pipe.write(packed.substr(packed.size() - 1));
  pipe.close_writing();
  Outcome outcome = Outcome::line;
  std::vector<std::string> rest;
  while ((outcome = reader.next(line, 0.0)) == Outcome::line) {
    rest.push_back(line);
  }

  CHECK(outcome == Outcome::end);
  REQUIRE(!rest.empty());
  CHECK(rest.back() == "second");
  CHECK(reader.num_lines() == 2);
}

}  // namespace

TEST_CASE("a line that has come in part is kept until the rest is there") {
  Pipe pipe;
  LineReader reader(pipe.path(), 100);
  std::string line;

  CHECK(reader.next(line, 0.0) == Outcome::waiting);
  pipe.write("on");
  CHECK(reader.next(line, 0.0) == Outcome::waiting);
  CHECK(reader.next(line, 0.001) == Outcome::waiting);
  pipe.write("e\ntwo\nth");
  CHECK(reader.next(line, 0.0) == Outcome::line);
  CHECK(line == "one");
  CHECK(reader.next(line, 0.0) == Outcome::line);
  CHECK(line == "two");
  CHECK(reader.next(line, 0.0) == Outcome::waiting);
  pipe.close_writing();
  CHECK(reader.next(line, 0.0) == Outcome::line);
  CHECK(line == "th");
  CHECK(reader.next(line, 0.0) == Outcome::end);
  CHECK(reader.num_lines() == 3);
}

TEST_CASE("input that comes byte by byte is unpacked as it comes") {
  expect_lines_in_pieces("first\nsecond");
  expect_lines_in_pieces(gzipped("first\nsecond"));
  expect_lines_in_pieces(zstd_packed("first\nsecond"));
}

TEST_CASE("a named pipe may be opened before its writer and ends with it") {
  const ScratchFolder folder;
  REQUIRE(::mkfifo(folder.file("fifo").c_str(), 0600) == 0);
  LineReader reader(folder.file("fifo"), 100);
  std::string line;

  CHECK(reader.next(line, 0.0) == Outcome::waiting);
  const int writer = ::open(folder.file("fifo").c_str(), O_WRONLY | O_NONBLOCK);
  REQUIRE(writer >= 0);
  CHECK(reader.next(line, 0.0) == Outcome::waiting);
  REQUIRE(::write(writer, "one\ntwo", 7) == 7);
  CHECK(reader.next(line, 0.0) == Outcome::line);
  CHECK(reader.next(line, 0.0) == Outcome::waiting);
  ::close(writer);
  CHECK(reader.next(line, 0.0) == Outcome::line);
  CHECK(line == "two");
  CHECK(reader.next(line, 0.0) == Outcome::end);
}

TEST_CASE("a reader without patience limit waits for what comes") {
  Pipe pipe;
  pipe.write("one\n");
  pipe.close_writing();
  LineReader reader(pipe.path(), 100);
  std::string line;

  CHECK(reader.next(line) == Outcome::line);
  CHECK(reader.next(line) == Outcome::end);
}
