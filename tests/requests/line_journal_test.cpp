#include "requests/line_journal.hpp"

#include "base/file.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <vector>

using metro::ExitCode;
using metro::JournalEntry;
using metro::LineJournal;
using metro::OutputFile;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

// Without waiting for the disk: these tests write hundreds of files.
void put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

constexpr std::size_t entry_bytes = 56;

const std::vector<JournalEntry> three{{{1, 11}, OutputFile::completions, 0, 5, 7},
                                      {{4, 44}, OutputFile::errors, 0, 9, 8},
                                      {{2, 22}, OutputFile::completions, 5, 6, 9}};

void write(const std::string& path, const std::vector<JournalEntry>& entries) {
  LineJournal journal(path, 0.0);
  for (const JournalEntry& entry : entries) {
    journal.append(entry);
  }
  journal.flush();
}

std::vector<JournalEntry> entries_of(LineJournal& journal, std::size_t most = 1'000'000) {
  std::vector<JournalEntry> found;
  journal.recover([&](const JournalEntry& entry) {
    found.push_back(entry);
    return found.size() <= most;
  });
  if (found.size() > most) {
    found.pop_back();
  }
  return found;
}

std::vector<JournalEntry> entries_in(const std::string& path) {
  LineJournal journal(path, 0.0);
  return entries_of(journal);
}

std::vector<JournalEntry> first_of(std::size_t count) {
  return {three.begin(), three.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE("a journal gives back what was written, and goes on behind it") {
  const ScratchFolder folder;
  write(folder.file("journal"), first_of(2));

  {
    LineJournal journal(folder.file("journal"), 0.0);
    CHECK(entries_of(journal) == first_of(2));
    journal.append(three[2]);
  }

  CHECK(entries_in(folder.file("journal")) == three);
}

TEST_CASE("a journal that is longer than one portion comes back whole") {
  const ScratchFolder folder;
  std::vector<JournalEntry> many;
  for (std::int64_t i = 0; i < 10'000; ++i) {
    many.push_back({{i + 1, static_cast<metro::Digest>(i * i)}, OutputFile::completions, 3 * i, 3, 1});
  }

  write(folder.file("journal"), many);

  CHECK(entries_in(folder.file("journal")) == many);
}

TEST_CASE("a journal that ends anywhere gives its whole entries, and the rest is cut off") {
  const ScratchFolder folder;
  write(folder.file("whole"), three);
  const std::string whole = metro::read_file(folder.file("whole"), ExitCode::input);
  REQUIRE(whole.size() == 3 * entry_bytes);

  for (std::size_t length = 0; length <= whole.size(); ++length) {
    put(folder.file("torn"), whole.substr(0, length));
    CHECK(entries_in(folder.file("torn")) == first_of(length / entry_bytes));
    CHECK(std::filesystem::file_size(folder.file("torn")) == length / entry_bytes * entry_bytes);
  }
}

TEST_CASE("a journal ends at an entry with any byte changed") {
  const ScratchFolder folder;
  write(folder.file("journal"), three);
  const std::string whole = metro::read_file(folder.file("journal"), ExitCode::input);

  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    put(folder.file("damaged"), damaged);
    CHECK(entries_in(folder.file("damaged")) == first_of(at / entry_bytes));
  }
  put(folder.file("damaged"), whole + std::string(4 * entry_bytes, '\0'));
  CHECK(entries_in(folder.file("damaged")) == three);
}

TEST_CASE("a journal is cut where its reader wants it") {
  const ScratchFolder folder;
  write(folder.file("journal"), three);

  {
    LineJournal journal(folder.file("journal"), 0.0);
    CHECK(entries_of(journal, 1) == first_of(1));
    journal.append(three[1]);
  }

  CHECK(entries_in(folder.file("journal")) == first_of(2));
}

TEST_CASE("a journal that another run has open is refused") {
  const ScratchFolder folder;
  const LineJournal journal(folder.file("journal"), 0.0);

  expect_error(ExitCode::usage, {"/journal is in use: another run"},
               [&] { LineJournal(folder.file("journal"), 0.05); });
}

TEST_CASE("a journal is no symbolic link and in a folder that is there") {
  const ScratchFolder folder;
  put(folder.file("target"), "old\n");
  std::filesystem::create_symlink(folder.file("target"), folder.file("link"));

  expect_error(ExitCode::usage, {"cannot open", "/link", "symbolic link"},
               [&] { LineJournal(folder.file("link"), 0.0); });
  expect_error(ExitCode::usage, {"/none/journal", "No such file"},
               [&] { LineJournal(folder.file("none/journal"), 0.0); });
}

TEST_CASE("an entry that cannot be written is an error of the machine") {
  LineJournal journal("/dev/full", 0.0);

  expect_error(ExitCode::machine, {"cannot write /dev/full", "No space left on device"},
               [&] { journal.append(three[0]); });
}
