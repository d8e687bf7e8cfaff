#include "replay/replay_report.hpp"

#include "replay/synthetic_trace.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <sstream>

using metro::ReplayResult;
using metro::ReplaySettings;
using metro::RoutingPolicy;
using metro::RoutingTrace;
using nlohmann::json;

namespace {

struct Replayed {
  RoutingTrace trace = metro::test::synthetic_trace(16, 2, 3, 2000, 10);
  ReplaySettings settings;
  std::vector<ReplayResult> results;

  Replayed() {
    settings.placements = {"eplb"};
    settings.policies = {RoutingPolicy::metro, RoutingPolicy::even};
    settings.batch_sizes = {8};
    settings.rank_counts = {4};
    settings.replications = {1.5};
    settings.layers = {0, 2};
    settings.num_draws = 10;
    results = metro::replay(trace, settings, {});
  }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("the JSON of a replay holds its settings and every case, overall and per layer") {
  const Replayed replayed;

  const json document = json::parse(metro::replay_json(replayed.trace, "t.h5", replayed.settings, replayed.results));

  CHECK(document["format"] == "metro-replay");
  CHECK(document["trace"]["path"] == "t.h5");
  CHECK(document["trace"]["num_experts"] == 16);
  CHECK(document["settings"]["judge_on"] == "odd");
  CHECK(document["settings"]["layers"] == json::array({1, 5}));
  REQUIRE(document["results"].size() == 2);
  const json& first = document["results"][0];
  CHECK(first["policy"] == "metro");
  CHECK(first["replication"] == 1.5);
  CHECK(first["overall"]["lambda"] == replayed.results[0].overall.lambda);
  CHECK(first["overall"]["batches"] == 20);
  CHECK(first["layers"][1]["layer"] == 5);
  CHECK(first["layers"][1]["optimum"] == replayed.results[0].layers[1].optimum);
  CHECK(first["overall"].contains("lock_differing_share"));
  CHECK_FALSE(document["results"][1]["overall"].contains("lock_differing_share"));
}

TEST_CASE("the CSV of a replay has a line per case and layer, as many values as the header has names") {
  Replayed replayed;
  replayed.results[0].replayed.placement = "a,\"b\".json";

  const auto lines = lines_of(metro::replay_csv(replayed.trace, replayed.settings, replayed.results));

  REQUIRE(lines.size() == 1 + 2 * 3);
  CHECK(lines[1].starts_with("\"a,\"\"b\"\".json\",4,1.5,6,8,metro,all,20,"));
  CHECK(lines[2].find(",metro,1,10,") != std::string::npos);
  CHECK(lines[4].starts_with("eplb,4,1.5,6,8,even,all,20,"));
  CHECK(std::count(lines[4].begin(), lines[4].end(), ',') == std::count(lines[0].begin(), lines[0].end(), ','));
}

TEST_CASE("the table of a replay has a line per case") {
  const Replayed replayed;

  const auto lines = lines_of(metro::replay_table(replayed.results));

  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[0], Catch::Matchers::Contains("lambda") && Catch::Matchers::Contains("optimum"));
  CHECK_THAT(lines[1], Catch::Matchers::Contains("metro"));
  CHECK_THAT(lines[2], Catch::Matchers::Contains("even"));
  CHECK(lines[1].size() == lines[0].size());
}
