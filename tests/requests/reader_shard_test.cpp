// Several readers that share an input.
#include "requests/reader_harness.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <set>
#include <string>
#include <tuple>

using metro::digest_of;
using metro::EarlierLines;
using metro::LineCount;
using metro::RequestInput;
using metro::RequestReader;
using metro::test::read_all;
using metro::test::ReadResult;
using metro::test::ScratchFolder;
using metro::test::small_defaults;

namespace {

// Every kind of line: with and without a name, sampled, refused, blank, twice the same name, with arrival times.
const std::vector<std::string> mixed{
    R"({"prompt": [1]})",
    R"({"prompt": 7})",
    "  ",
    R"({"custom_id": "d", "prompt": [4]})",
    R"({"prompt": [5], "temperature": 1, "n": 2})",
    "nonsense",
    R"({"custom_id": "d", "prompt": [7], "arrival_s": 2})",
    R"({"prompt": [8]})",
    R"({"prompt": [9], "arrival_s": 1})",
    R"({"prompt": [10], "temperature": 0.5})",
    "",
};

// What must not depend on who reads a line: its number, name, seeds, arrival and refusal.
using Seen = std::set<std::tuple<std::int64_t, std::string, std::uint64_t, double, std::string>>;

Seen seen_in(const ReadResult& result) {
  Seen seen;
  for (const auto& line : result.accepted) {
    seen.insert({line.origin.line, line.origin.custom_id, line.samples.front().sampling.seed,
                 line.origin.arrival_s.value_or(-1.0), std::to_string(line.samples.size())});
  }
  for (const auto& line : result.rejected) {
    seen.insert({line.line, line.custom_id, 0, 0.0, line.message});
  }
  return seen;
}

struct Fixture {
  Fixture() {
    std::string text;
    for (const std::string& line : mixed) {
      text += line + "\n";
    }
    metro::write_file_atomically(folder.file("in"), text);
  }
  RequestInput input(std::int64_t shard_idx, std::int64_t num_shards) const {
    return {.files = {folder.file("in")}, .arrivals = "", .shard_idx = shard_idx, .num_shards = num_shards};
  }
  ScratchFolder folder;
};

}  // namespace

TEST_CASE("shards together read every line once and as one reader does") {
  const Fixture fixture;
  RequestReader whole(fixture.input(0, 1), small_defaults(), nullptr);
  const Seen expected = seen_in(read_all(whole));

  for (const std::int64_t num_shards : {1, 2, 3, 4, 11, 40}) {
    CAPTURE(num_shards);
    Seen seen;
    std::size_t num_seen = 0;
    LineCount sum;
    for (std::int64_t shard_idx = 0; shard_idx < num_shards; ++shard_idx) {
      RequestReader reader(fixture.input(shard_idx, num_shards), small_defaults(), nullptr);
      const Seen part = seen_in(read_all(reader));
      for (const auto& line : part) {
        CHECK((std::get<0>(line) - 1) % num_shards == shard_idx);
      }
      seen.insert(part.begin(), part.end());
      num_seen += part.size();
      CHECK(reader.line_count().all == 9);  // two are blank
      sum.own += reader.line_count().own;
      CHECK(reader.num_repeated_ids() == 1);
    }
    CHECK(seen == expected);
    CHECK(num_seen == expected.size());
    CHECK(sum.own == 9);
  }
}

TEST_CASE("every shard takes the rows of the trace that belong to the lines of others") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("in"), "{\"prompt\": [1]}\n{\"prompt\": [2]}\n\n{\"prompt\": [4]}\n");
  metro::write_file_atomically(folder.file("trace"),
                               "{\"timestamp\": 0}\n{\"timestamp\": 1000}\n{\"timestamp\": 3000}\n");
  RequestReader reader(
      {.files = {folder.file("in")}, .arrivals = folder.file("trace"), .shard_idx = 1, .num_shards = 2},
      small_defaults(), nullptr);

  const ReadResult result = read_all(reader);

  REQUIRE(result.accepted.size() == 2);
  CHECK(result.accepted[0].origin.arrival_s == 1.0);
  CHECK(result.accepted[1].origin.arrival_s == 3.0);
}

TEST_CASE("a shard that goes on does not return lines of others, and counts as if it had not been stopped") {
  const Fixture fixture;
  EarlierLines earlier;
  earlier.add({2, digest_of(mixed[1])}, true);
  earlier.add({8, digest_of(mixed[7])}, false);
  RequestReader reader(fixture.input(1, 2), small_defaults(), nullptr);

  reader.pass_over(earlier, 1.0);
  const ReadResult result = read_all(reader);

  REQUIRE(result.accepted.size() == 3);
  CHECK(result.accepted[0].origin.custom_id == "d");
  CHECK(result.accepted[1].origin.custom_id == "line-8");
  CHECK(result.accepted[2].origin.custom_id == "line-10");
  REQUIRE(result.rejected.size() == 1);
  CHECK(result.rejected[0].custom_id == "line-6");
  CHECK(reader.line_count() == LineCount{9, 5});
}
