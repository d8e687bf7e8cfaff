#include "requests/line_file.hpp"

#include "base/file.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <sys/resource.h>

#include <csignal>
#include <filesystem>

using metro::ExitCode;
using metro::LineFile;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

std::string content_of(const std::string& path) {
  return metro::read_file(path, ExitCode::input);
}

// Files of this process may not grow beyond so many bytes; a write that would is cut, then fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t num_bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{num_bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

}  // namespace

TEST_CASE("a line is in the file as soon as it is written") {
  const ScratchFolder folder;
  LineFile file(folder.file("out"), false);

  file.write("first");
  file.write("");
  file.write("third");

  CHECK(content_of(folder.file("out")) == "first\n\nthird\n");
  CHECK_NOTHROW(file.flush());
}

TEST_CASE("a full disk is an error of the machine") {
  LineFile file("/dev/full", true);

  expect_error(ExitCode::machine, {"cannot write /dev/full", "No space left on device"}, [&] { file.write("x"); });
}

TEST_CASE("a line that could not be written whole is cut off again") {
  const ScratchFolder folder;
  LineFile file(folder.file("out"), false);
  const std::string line(59, 'x');
  file.write(line);

  {
    const FileSizeLimit limit(100);
    expect_error(ExitCode::machine, {"cannot write", "/out"}, [&] { file.write(line); });
  }

  CHECK(content_of(folder.file("out")) == line + "\n");
}

TEST_CASE("a file that was removed or replaced while it was written is an error") {
  const bool replaced = GENERATE(false, true);
  const ScratchFolder folder;
  LineFile file(folder.file("out"), false);
  file.write("first");
  CHECK_NOTHROW(file.flush());

  std::filesystem::rename(folder.file("out"), folder.file("elsewhere"));
  if (replaced) {
    metro::write_file_atomically(folder.file("out"), "first\n");
  }

  expect_error(ExitCode::machine, {"/out was", replaced ? "replaced" : "removed"}, [&] { file.flush(); });
}

TEST_CASE("a file that is there is kept, and goes on only when that is wanted") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("out"), "old\n");

  expect_error(ExitCode::usage, {"cannot create", "/out", "File exists"}, [&] { LineFile(folder.file("out"), false); });
  CHECK(content_of(folder.file("out")) == "old\n");
  LineFile(folder.file("out"), true).write("new");
  CHECK(content_of(folder.file("out")) == "old\nnew\n");
  CHECK(LineFile(folder.file("out"), true).num_bytes() == 8);
}

TEST_CASE("a line that could not be written whole behind an earlier part is cut off, and the earlier part stays") {
  const ScratchFolder folder;
  const std::string old(80, 'x');
  metro::write_file_atomically(folder.file("out"), old);
  LineFile file(folder.file("out"), true);

  {
    const FileSizeLimit limit(100);
    expect_error(ExitCode::machine, {"cannot write", "/out"}, [&] { file.write(old); });
  }

  CHECK(content_of(folder.file("out")) == old);
}

TEST_CASE("a symbolic link or a missing folder is refused as a place for output") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("target"), "old\n");
  std::filesystem::create_symlink(folder.file("target"), folder.file("link"));

  expect_error(ExitCode::usage, {"/link", "it is a symbolic link"}, [&] { LineFile(folder.file("link"), true); });
  expect_error(ExitCode::usage, {"/none/out", "No such file"}, [&] { LineFile(folder.file("none/out"), true); });
  CHECK(content_of(folder.file("target")) == "old\n");
}
