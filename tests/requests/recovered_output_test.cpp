// An output folder as a kill, or a crash of the machine, may leave it behind.
#include "requests/recovered_output.hpp"

#include "base/file.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>

using metro::Digest;
using metro::ExitCode;
using metro::LineJournal;
using metro::OutputFile;
using metro::RecoveredOutput;
using metro::test::ScratchFolder;

namespace {

// Lines 1 to 4 of the input: 1, 2, 4 completed and 3 rejected, in the order 2, 3, 1, 4.
class Output {
 public:
  Output() {
    LineJournal journal(folder_.file("journal"), 0.0);
    add(journal, 2, OutputFile::completions, "two\n");
    add(journal, 3, OutputFile::errors, "number three\n");
    add(journal, 1, OutputFile::completions, "one\n");
    add(journal, 4, OutputFile::completions, "the fourth\n");
    write("completions.jsonl", completions_);
    write("errors.jsonl", errors_);
  }

  void write(const char* name, const std::string& content) const {
    metro::write_file_atomically(folder_.file(name), content);
  }
  std::string path(const char* name) const { return folder_.file(name); }
  std::string content(const char* name) const { return metro::read_file(path(name), ExitCode::input); }

  RecoveredOutput recover() const {
    LineJournal journal(folder_.file("journal"), 0.0);
    return metro::recover_output(folder_.path().string(), journal);
  }

 private:
  void add(LineJournal& journal, std::int64_t line, OutputFile file, const std::string& text) {
    std::string& content = file == OutputFile::completions ? completions_ : errors_;
    journal.append(
        {{line, static_cast<Digest>(100 + line)}, file, std::ssize(content), std::ssize(text), metro::digest_of(text)});
    content += text;
  }

  ScratchFolder folder_;
  std::string completions_, errors_;
};

// "1 3" if lines 1 and 3 are finished.
std::string finished(const RecoveredOutput& found) {
  std::string text;
  for (std::int64_t line = 1; line <= found.finished.last(); ++line) {
    if (found.finished.is_finished(line)) {
      CHECK(found.finished.digest_of(line) == static_cast<Digest>(100 + line));
      text += text.empty() ? "" : " ";
      text += std::to_string(line);
    }
  }
  return text;
}

}  // namespace

TEST_CASE("of whole output every line is finished") {
  const Output output;

  const RecoveredOutput found = output.recover();

  CHECK(finished(found) == "1 2 3 4");
  CHECK(found.num_completions == 3);
  CHECK(found.num_errors == 1);
  CHECK(!found.was_cut);
}

TEST_CASE("a torn last line is cut off and not finished") {
  const Output output;
  output.write("completions.jsonl", "two\none\nthe fo");

  const RecoveredOutput found = output.recover();

  CHECK(finished(found) == "1 2 3");
  CHECK(found.was_cut);
  CHECK(output.content("completions.jsonl") == "two\none\n");
  CHECK(output.content("errors.jsonl") == "number three\n");
  CHECK(!output.recover().was_cut);
}

TEST_CASE("lines that the journal does not know are cut off") {
  const Output output;
  output.write("completions.jsonl", "two\none\nthe fourth\nfive\n");

  CHECK(finished(output.recover()) == "1 2 3 4");
  CHECK(output.content("completions.jsonl") == "two\none\nthe fourth\n");
}

TEST_CASE("output that is not what the journal says is cut off where that begins, in both files") {
  const Output output;
  output.write("errors.jsonl", "number thrEE\n");  // lost, or changed: what was written later is not relied on

  const RecoveredOutput found = output.recover();

  CHECK(finished(found) == "2");
  CHECK(output.content("completions.jsonl") == "two\n");
  CHECK(output.content("errors.jsonl").empty());
  CHECK(std::filesystem::file_size(output.path("journal")) == 56);
}

TEST_CASE("an output file that is missing counts as empty") {
  const Output output;
  std::filesystem::remove(output.path("errors.jsonl"));

  CHECK(finished(output.recover()) == "2");
  CHECK(!std::filesystem::exists(output.path("errors.jsonl")));
}
