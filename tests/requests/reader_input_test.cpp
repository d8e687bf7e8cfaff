// Several inputs and repeated ids.
#include "base/file.hpp"
#include "requests/packed_text.hpp"
#include "requests/reader_harness.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

using metro::RequestInput;
using metro::RequestReader;
using metro::test::read_all;
using metro::test::ReadResult;
using metro::test::ScratchFolder;
using metro::test::small_defaults;

TEST_CASE("with several inputs ids count all lines, and places name file and line") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("a"), "{\"prompt\": [1]}\n\n{\"prompt\": [2]}");
  metro::write_file_atomically(folder.file("b"), metro::test::gzipped("nonsense\n{\"prompt\": [3]}\n"));
  metro::write_file_atomically(folder.file("c"), metro::test::zstd_packed("{\"n\": 2}\n{\"prompt\": [4]}\n"));
  RequestReader reader(RequestInput{{folder.file("a"), folder.file("b"), folder.file("c")}, "", 1.0}, small_defaults(),
                       nullptr);

  const ReadResult result = read_all(reader);

  std::vector<std::string> places;
  for (const auto& [samples, origin] : result.accepted) {
    const metro::Request& request = samples.front();
    CHECK(request.prompt == std::vector<std::int32_t>{static_cast<std::int32_t>(request.id) + 1});
    places.push_back(origin.custom_id + " " + origin.file.substr(folder.path().string().size()) + ":" +
                     std::to_string(origin.line));
  }
  for (const auto& rejection : result.rejected) {
    places.push_back(rejection.custom_id + " " + rejection.file.substr(folder.path().string().size()) + ":" +
                     std::to_string(rejection.line));
  }
  CHECK(places == std::vector<std::string>{"line-1 /a:1", "line-3 /a:3", "line-5 /b:2", "line-7 /c:2", "line-4 /b:1",
                                           "line-6 /c:1"});
  CHECK(reader.num_lines() == 7);
}

TEST_CASE("a custom_id that was there before is counted, also across files, and the first one named") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("a"),
                               "{\"custom_id\": \"x\", \"prompt\": [1]}\n{\"custom_id\": \"y\", \"prompt\": [1]}\n");
  metro::write_file_atomically(folder.file("b"),
                               "{\"prompt\": [1]}\n{\"custom_id\": \"y\", \"prompt\": [2]}\n"
                               "{\"custom_id\": \"x\", \"n\": 2}\n{\"custom_id\": \"z\", \"prompt\": [1]}\n"
                               "{\"custom_id\": \"x\", \"prompt\": [1]}\n");
  RequestReader reader(RequestInput{{folder.file("a"), folder.file("b")}, "", 1.0}, small_defaults(), nullptr);

  const ReadResult result = read_all(reader);

  CHECK(result.accepted.size() == 6);
  CHECK(reader.num_repeated_ids() == 3);
  REQUIRE(reader.first_repeated_id());
  CHECK(reader.first_repeated_id()->custom_id == "\"y\"");
  CHECK(reader.first_repeated_id()->file == folder.file("b"));
  CHECK(reader.first_repeated_id()->line == 2);
}

TEST_CASE("lines without a custom_id repeat none") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("a"), "{\"prompt\": [1]}\n{\"prompt\": [1], \"custom_id\": null}\nx\n");
  RequestReader reader(folder.file("a"), small_defaults(), nullptr);

  read_all(reader);

  CHECK(reader.num_repeated_ids() == 0);
  CHECK(!reader.first_repeated_id());
}
