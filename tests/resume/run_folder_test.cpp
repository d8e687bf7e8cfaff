// The folder of a run after every way in which an earlier part can have ended.
#include "resume/run_folder.hpp"

#include "base/file.hpp"
#include "requests/completion_writer.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>

using metro::ExitCode;
using metro::RunFolder;
using metro::RunKey;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

const std::vector<RunKey> keys{{"model.checkpoint", "one of digest 1"}, {"requests.max_tokens", "16"}};

// A line whose completion has one token.
metro::CompletedLine completed(std::int64_t line) {
  metro::CompletedLine result;
  result.origin.input_line = {line, static_cast<metro::Digest>(100 + line)};
  result.origin.custom_id = "line-" + std::to_string(line);
  metro::Request request;
  request.prompt = {1};
  request.max_tokens = 1;
  result.samples.push_back({request, {{7, 0.0F, {}}}, metro::FinishReason::length});
  return result;
}

metro::EarlierRequest begun(std::int64_t line) {
  return {{line, static_cast<metro::Digest>(100 + line)}, {{{{3, 0.0F, {}}}, metro::FinishReason::none}}, {}};
}

// Begins a run, finishes the lines `finished` and then saves a state with `in_work`.
void begin_run(const std::string& directory, bool overwrite, const std::vector<std::int64_t>& finished,
               const std::vector<std::int64_t>& in_work) {
  RunFolder folder(directory, overwrite, keys);
  folder.begin();
  metro::CompletionWriter writer(directory, nullptr, folder.journal());
  for (const std::int64_t line : finished) {
    writer.write(completed(line));
  }
  std::vector<metro::EarlierRequest> requests;
  for (const std::int64_t line : in_work) {
    requests.push_back(begun(line));
  }
  folder.save(requests);
}

std::string content_of(const std::string& path) {
  return metro::read_file(path, ExitCode::input);
}

}  // namespace

TEST_CASE("a run that was cut goes on: finished lines are known, unfinished ones come with their tokens") {
  const ScratchFolder scratch;
  begin_run(scratch.file("out"), false, {1, 4}, {2, 3});

  const RunFolder folder(scratch.file("out"), false, keys);

  CHECK(folder.goes_on());
  CHECK(folder.part() == 2);
  CHECK(folder.of_part("a/metrics.h5") == "a/metrics.2.h5");
  CHECK(folder.num_completions() == 2);
  CHECK(folder.num_errors() == 0);
  CHECK(folder.num_continued() == 2);
  CHECK(folder.requests() == std::vector<metro::EarlierRequest>{begun(2), begun(3)});
  CHECK(folder.earlier_lines().last() == 4);
  CHECK(folder.earlier_lines().is_finished(1));
  CHECK(!folder.earlier_lines().is_finished(2));
  CHECK(folder.earlier_lines().digest_of(3) == metro::Digest{103});
  CHECK(folder.note().empty());
}

TEST_CASE("a line that was finished after the last state is finished") {
  const ScratchFolder scratch;
  begin_run(scratch.file("out"), false, {1}, {2, 3});
  {
    RunFolder folder(scratch.file("out"), false, keys);
    folder.begin();
    metro::CompletionWriter(scratch.file("out"), nullptr, folder.journal()).write(completed(3));
  }

  const RunFolder folder(scratch.file("out"), false, keys);

  CHECK(folder.part() == 3);
  CHECK(folder.requests() == std::vector<metro::EarlierRequest>{begun(2)});
  CHECK(folder.earlier_lines().is_finished(3));
}

TEST_CASE("a torn last line and a half-written state are repaired, and the user is told") {
  const ScratchFolder scratch;
  begin_run(scratch.file("out"), false, {1, 2}, {});
  const std::string completions = content_of(scratch.file("out/completions.jsonl"));
  const std::size_t first = completions.find('\n') + 1;
  metro::write_file_atomically(scratch.file("out/completions.jsonl"), completions.substr(0, completions.size() - 3));
  metro::write_file_atomically(scratch.file("out/resume.state.partial-1234"), "metro-run");

  RunFolder folder(scratch.file("out"), false, keys);
  folder.begin();

  CHECK_THAT(folder.note(), Catch::Matchers::Contains("incomplete"));
  CHECK(folder.num_completions() == 1);
  CHECK(content_of(scratch.file("out/completions.jsonl")) == completions.substr(0, first));
  CHECK(!std::filesystem::exists(scratch.file("out/resume.state.partial-1234")));
}

TEST_CASE("whatever may not change is refused with its name and both values") {
  const ScratchFolder scratch;
  begin_run(scratch.file("out"), false, {1}, {2});
  const std::string before = content_of(scratch.file("out/completions.jsonl"));

  expect_error(ExitCode::usage, {"requests.max_tokens is 32, but was 16", "/out began", "--overwrite"}, [&] {
    RunFolder(scratch.file("out"), false, {keys[0], {"requests.max_tokens", "32"}});
  });
  expect_error(ExitCode::usage, {"file 2 of requests.input is b, but was not there"}, [&] {
    RunFolder(scratch.file("out"), false, {keys[0], keys[1], {"file 2 of requests.input", "b"}});
  });
  expect_error(ExitCode::usage, {"requests.max_tokens is not there, but was 16"},
               [&] { RunFolder(scratch.file("out"), false, {keys[0]}); });

  CHECK(content_of(scratch.file("out/completions.jsonl")) == before);
  CHECK(RunFolder(scratch.file("out"), false, keys).goes_on());
}

TEST_CASE("a finished run leaves no state, and its output is in the way of the next") {
  const ScratchFolder scratch;
  begin_run(scratch.file("out"), false, {1}, {});
  {
    RunFolder folder(scratch.file("out"), false, keys);
    folder.begin();
    folder.end();
  }

  CHECK(!std::filesystem::exists(scratch.file("out/resume.state")));
  CHECK(!std::filesystem::exists(scratch.file("out/resume.journal")));
  expect_error(ExitCode::usage, {"completions.jsonl is there already"},
               [&] { RunFolder(scratch.file("out"), false, keys); });
}

TEST_CASE("overwriting begins anew and leaves nothing of the earlier run, once it begins") {
  const ScratchFolder scratch;
  begin_run(scratch.file("out"), false, {1, 2}, {3});
  metro::write_file_atomically(scratch.file("out/metrics.h5"), "old");
  metro::write_file_atomically(scratch.file("out/metrics.2.h5"), "old");
  const std::string before = content_of(scratch.file("out/completions.jsonl"));

  RunFolder folder(scratch.file("out"), true, {});
  CHECK(!folder.goes_on());
  CHECK(folder.requests().empty());
  CHECK(content_of(scratch.file("out/completions.jsonl")) == before);
  folder.begin();

  CHECK(folder.part() == 1);
  CHECK(folder.of_part("metrics.h5") == "metrics.h5");
  for (const char* name : {"completions.jsonl", "errors.jsonl", "metrics.h5", "metrics.2.h5"}) {
    CHECK(!std::filesystem::exists(scratch.file(std::string("out/") + name)));
  }
  CHECK(metro::read_run_state(scratch.file("out/resume.state")).requests.empty());
}

TEST_CASE("a run that was killed before it made any output goes on") {
  const ScratchFolder scratch;
  RunFolder(scratch.file("out"), false, keys).begin();
  REQUIRE(std::filesystem::exists(scratch.file("out/resume.state")));

  CHECK(RunFolder(scratch.file("out"), false, keys).goes_on());
  std::filesystem::remove(scratch.file("out/resume.journal"));  // killed before that
  CHECK(RunFolder(scratch.file("out"), false, keys).goes_on());
}

TEST_CASE("output whose journal is missing is not touched") {
  const ScratchFolder scratch;
  begin_run(scratch.file("out"), false, {1}, {});
  const std::string before = content_of(scratch.file("out/completions.jsonl"));
  std::filesystem::remove(scratch.file("out/resume.journal"));

  expect_error(ExitCode::input, {"cannot go on in", "/out: resume.journal is missing", "--overwrite"},
               [&] { RunFolder(scratch.file("out"), false, keys); });
  CHECK(content_of(scratch.file("out/completions.jsonl")) == before);
}

TEST_CASE("a damaged state is refused and its output not touched") {
  const ScratchFolder scratch;
  begin_run(scratch.file("out"), false, {1}, {2});
  metro::write_file_atomically(scratch.file("out/resume.state"), "metro-run-state 1\n");
  const std::string before = content_of(scratch.file("out/completions.jsonl"));

  expect_error(ExitCode::input, {"cannot go on from", "/out/resume.state", "damaged"},
               [&] { RunFolder(scratch.file("out"), false, keys); });
  CHECK(content_of(scratch.file("out/completions.jsonl")) == before);
}
