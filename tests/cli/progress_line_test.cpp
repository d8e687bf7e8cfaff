#include "cli/progress_line.hpp"

#include "base/file.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <string>

using metro::ProgressLine;

namespace {

constexpr std::int64_t mib = 1 << 20;

// What `use` makes a ProgressLine write.
template <class Use>
std::string written(bool is_terminal, const Use& use) {
  const metro::test::ScratchFolder folder;
  std::FILE* file = std::fopen(folder.file("out").c_str(), "w");
  REQUIRE(file != nullptr);
  {
    ProgressLine line(file, is_terminal);
    use(line);
  }
  std::fclose(file);
  return metro::read_file(folder.file("out"), metro::ExitCode::machine);
}

}  // namespace

TEST_CASE("in a log, progress is a line every five seconds at most") {
  const std::string text = written(false, [](ProgressLine& line) {
    line.update(0.1, 0, 4 * mib, "/embed");
    line.update(4.9, mib, 4 * mib, "/embed");
    line.update(5.0, 2 * mib, 4 * mib, "/norm");
    line.update(9.9, 3 * mib, 4 * mib, "/norm");
    line.update(9.95, 4 * mib, 4 * mib, "/norm");
  });

  CHECK(text == " 50%  2.00 MiB of 4.00 MiB  /norm\n");
}

TEST_CASE("on a terminal, one line is rewritten, shown in full at the end, and closed") {
  const std::string text = written(true, [](ProgressLine& line) {
    line.update(0.05, 0, 4 * mib, "/embed");
    line.update(0.1, mib, 4 * mib, "/embed");
    line.update(0.15, 2 * mib, 4 * mib, "/embed");
    line.update(0.16, 4 * mib, 4 * mib, "/a");
    line.close();
  });

  CHECK(text == "\r 25%  1.00 MiB of 4.00 MiB  /embed\r100%  4.00 MiB of 4.00 MiB  /a    \n");
}

TEST_CASE("a line on a terminal never wraps, and is closed when the command fails") {
  const std::string text =
      written(true, [](ProgressLine& line) { line.update(1.0, 1, 2, "/" + std::string(200, 'x')); });

  CHECK(text.size() == 1 + 79 + 1);
  CHECK(text.back() == '\n');
}

TEST_CASE("nothing to convert is complete") {
  CHECK(written(true, [](ProgressLine& line) { line.update(0.0, 0, 0, "x"); }) == "\r100%  0 B of 0 B  x\n");
  CHECK(written(true, [](ProgressLine&) {}).empty());
}
