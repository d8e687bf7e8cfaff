#include "requests/input_files.hpp"

#include "base/file.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>

using metro::ExitCode;
using metro::find_input_files;
using metro::test::expect_error;
using metro::test::ScratchFolder;
using Paths = std::vector<std::string>;

TEST_CASE("a pattern stands for the files that match it, sorted by their bytes") {
  const ScratchFolder folder;
  for (const char* name : {"b.jsonl", "a10.jsonl", "B.jsonl", "a2.jsonl", "c.txt"}) {
    metro::write_file_atomically(folder.file(name), "");
  }

  CHECK(find_input_files({folder.file("*.jsonl")}) ==
        Paths{folder.file("B.jsonl"), folder.file("a10.jsonl"), folder.file("a2.jsonl"), folder.file("b.jsonl")});
  CHECK(find_input_files({folder.file("a?.jsonl")}) == Paths{folder.file("a2.jsonl")});
  CHECK(find_input_files({folder.file("[bc].*")}) == Paths{folder.file("b.jsonl"), folder.file("c.txt")});
}

TEST_CASE("inputs keep their order, patterns in their place") {
  const ScratchFolder folder;
  for (const char* name : {"a.jsonl", "b.jsonl"}) {
    metro::write_file_atomically(folder.file(name), "");
  }

  CHECK(find_input_files({"z", folder.file("*.jsonl"), "-", "a"}) ==
        Paths{"z", folder.file("a.jsonl"), folder.file("b.jsonl"), "-", "a"});
}

TEST_CASE("a path that exists is no pattern, whatever its characters") {
  const ScratchFolder folder;
  for (const char* name : {"a[1].jsonl", "a1.jsonl"}) {
    metro::write_file_atomically(folder.file(name), "");
  }

  CHECK(find_input_files({folder.file("a[1].jsonl")}) == Paths{folder.file("a[1].jsonl")});
}

TEST_CASE("a pattern that matches nothing is refused by name") {
  const ScratchFolder folder;

  expect_error(ExitCode::input, {"requests.input = ", "/*.jsonl: no file matches"},
               [&] { find_input_files({folder.file("*.jsonl")}); });
}

TEST_CASE("standard input can be asked for only once") {
  expect_error(ExitCode::usage, {"requests.input: \"-\" is there twice"}, [] { find_input_files({"-", "a", "-"}); });
}
