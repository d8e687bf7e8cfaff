#include "base/file.hpp"
#include "base/json.hpp"
#include "placement/placement.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

using metro::Placement;

namespace {

using Loads = std::vector<std::int64_t>;
using Slots = std::vector<std::int32_t>;

std::vector<std::int64_t> replicas_per_expert(std::span<const std::int32_t> slots, std::int64_t num_experts) {
  std::vector<std::int64_t> count(static_cast<std::size_t>(num_experts), 0);
  for (const std::int32_t expert : slots) {
    ++count.at(static_cast<std::size_t>(expert));
  }
  return count;
}

// The published definition of the global form, literally: linear searches for the first best, one layer.
Slots global_by_definition(const Loads& loads, std::size_t num_ranks, std::size_t slots_per_rank) {
  std::vector<std::size_t> replicas(loads.size());
  std::iota(replicas.begin(), replicas.end(), std::size_t{0});
  std::vector<double> count(loads.size(), 1.0);
  const auto weight = [&](std::size_t expert) { return static_cast<double>(loads[expert]) / count[expert]; };
  while (replicas.size() < num_ranks * slots_per_rank) {
    std::size_t heaviest = 0;
    for (std::size_t expert = 1; expert < loads.size(); ++expert) {
      heaviest = weight(expert) > weight(heaviest) ? expert : heaviest;
    }
    replicas.push_back(heaviest);
    count[heaviest] += 1.0;
  }
  std::vector<Slots> ranks(num_ranks);
  std::vector<double> rank_weight(num_ranks, 0.0);
  std::vector<bool> is_packed(replicas.size(), false);
  for (std::size_t round = 0; round < replicas.size(); ++round) {
    std::size_t item = replicas.size();
    for (std::size_t other = 0; other < replicas.size(); ++other) {
      if (!is_packed[other] && (item == replicas.size() || weight(replicas[other]) > weight(replicas[item]))) {
        item = other;
      }
    }
    std::size_t lightest = num_ranks;
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      const bool has_room = ranks[rank].size() < slots_per_rank;
      if (has_room && (lightest == num_ranks || rank_weight[rank] < rank_weight[lightest])) {
        lightest = rank;
      }
    }
    is_packed[item] = true;
    ranks[lightest].push_back(static_cast<std::int32_t>(replicas[item]));
    rank_weight[lightest] += weight(replicas[item]);
  }
  Slots slots;
  for (const Slots& rank : ranks) {
    slots.insert(slots.end(), rank.begin(), rank.end());
  }
  return slots;
}

}  // namespace

TEST_CASE("the published example of hierarchical EPLB comes out slot by slot") {
  const std::string path = METRO_TEST_DATA "/placement/eplb_example.json";
  const auto example = metro::parse_json(metro::read_file(path, metro::ExitCode::input), path, metro::ExitCode::input);
  Loads loads;
  Slots expected;
  for (int layer = 0; layer < 2; ++layer) {
    const auto weight = example.at("weight").at(layer).get<Loads>();
    loads.insert(loads.end(), weight.begin(), weight.end());
    const auto slots = example.at("phy2log").at(layer).get<Slots>();
    expected.insert(expected.end(), slots.begin(), slots.end());
  }

  const Placement placement = metro::place_eplb(loads, 2, 12, example.at("num_groups"), example.at("num_nodes"),
                                                example.at("num_gpus"), 16 / example.at("num_gpus").get<int>());

  CHECK(placement.slot_to_expert == expected);
  for (int layer = 0; layer < 2; ++layer) {
    CHECK(replicas_per_expert(placement.layer(layer), 12) == example.at("logcnt").at(layer).get<Loads>());
  }
  metro::check_placement(placement, 2, 12, 8, "eplb");
}

TEST_CASE("global EPLB follows its definition, ties included") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const std::size_t num_experts = 2 + random() % 14;
    const std::size_t num_ranks = 1 + random() % 6;
    const std::size_t slots_per_rank = (num_experts + num_ranks - 1) / num_ranks + 1 + random() % 4;
    Loads loads(num_experts);
    std::generate(loads.begin(), loads.end(), [&] { return static_cast<std::int64_t>(1 + random() % 6); });

    const Placement placement =
        metro::place_eplb(loads, 1, static_cast<std::int64_t>(num_experts), 1, 1, static_cast<std::int64_t>(num_ranks),
                          static_cast<std::int64_t>(slots_per_rank));

    CHECK(placement.slot_to_expert == global_by_definition(loads, num_ranks, slots_per_rank));
  }
}

TEST_CASE("with one slot per rank the replicas lie in the order they were made") {
  const Placement placement = metro::place_eplb(Loads{1, 9, 1}, 1, 3, 1, 1, 5, 1);

  CHECK(placement.slot_to_expert == Slots{0, 1, 2, 1, 1});
}

TEST_CASE("no other number of replicas per expert lowers the largest load per replica") {
  std::mt19937_64 random(12);
  for (int round = 0; round < 50; ++round) {
    Loads loads(32);
    std::generate(loads.begin(), loads.end(), [&] { return static_cast<std::int64_t>(random() % 1000); });

    const Placement placement = metro::place_eplb(loads, 1, 32, 1, 1, 8, 6);

    const auto count = replicas_per_expert(placement.slot_to_expert, 32);
    double largest = 0.0;
    for (std::size_t expert = 0; expert < loads.size(); ++expert) {
      largest = std::max(largest, static_cast<double>(loads[expert]) / static_cast<double>(count[expert]));
    }
    std::int64_t needed = 0;  // replicas for every load per replica to be below `largest`
    for (const std::int64_t load : loads) {
      std::int64_t replicas = 1;
      while (static_cast<double>(load) / static_cast<double>(replicas) >= largest) {
        ++replicas;
      }
      needed += replicas;
    }
    CHECK(needed > 48);
  }
}

TEST_CASE("one very hot expert takes all spare slots of its node and no expert loses its own") {
  const Placement placement = metro::place_eplb(Loads{1000, 1, 1, 1, 1, 1, 1, 1}, 1, 8, 2, 2, 4, 3);

  const auto count = replicas_per_expert(placement.slot_to_expert, 8);
  CHECK(count[0] == 3);  // a node has 6 slots for its 4 experts
  CHECK(std::accumulate(count.begin(), count.end(), std::int64_t{0}) == 12);
  CHECK(*std::min_element(count.begin(), count.end()) == 1);
  metro::check_placement(placement, 1, 8, 4, "hot");
}

TEST_CASE("hierarchical EPLB keeps all replicas of a group on one node") {
  std::mt19937_64 random(13);
  Loads loads(3 * 64);
  std::generate(loads.begin(), loads.end(), [&] { return static_cast<std::int64_t>(random() % 500); });

  const Placement placement = metro::place_eplb(loads, 3, 64, 8, 4, 8, 10);

  for (int layer = 0; layer < 3; ++layer) {
    std::vector<std::set<std::size_t>> nodes_of_group(8);
    for (std::size_t slot = 0; slot < 80; ++slot) {
      const auto expert = static_cast<std::size_t>(placement.layer(layer)[slot]);
      nodes_of_group[expert / 8].insert(slot / 20);
    }
    CHECK(
        std::all_of(nodes_of_group.begin(), nodes_of_group.end(), [](const auto& nodes) { return nodes.size() == 1; }));
  }
}

TEST_CASE("EPLB is global when experts, groups, nodes or ranks do not divide") {
  const Loads loads{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  const auto place = [&](std::int64_t num_groups, std::int64_t num_nodes, std::int64_t num_ranks) {
    return metro::place_eplb(loads, 1, 12, num_groups, num_nodes, num_ranks, 3).slot_to_expert;
  };

  CHECK(place(3, 2, 8) == place(1, 1, 8));    // groups over nodes
  CHECK(place(4, 4, 6) == place(1, 1, 6));    // ranks over nodes
  CHECK(place(5, 5, 10) == place(1, 1, 10));  // experts over groups
  CHECK(place(1, 2, 8) == place(1, 1, 8));    // a single group
  CHECK(place(4, 2, 8) != place(1, 1, 8));    // the hierarchical form does differ here
}

TEST_CASE("without loads or with all loads zero the replicas are spread evenly") {
  const Placement no_loads = metro::place_eplb({}, 2, 6, 1, 1, 4, 4);
  const Placement zero_loads = metro::place_eplb(Loads(12, 0), 2, 6, 1, 1, 4, 4);
  const Placement equal_loads = metro::place_eplb(Loads(12, 7), 2, 6, 1, 1, 4, 4);

  CHECK(replicas_per_expert(no_loads.layer(1), 6) == Loads{3, 3, 3, 3, 2, 2});
  CHECK(zero_loads.slot_to_expert == no_loads.slot_to_expert);
  CHECK(equal_loads.slot_to_expert == no_loads.slot_to_expert);
}

TEST_CASE("a layer or a node without load is spread evenly beside one that has load") {
  const Placement layers = metro::place_eplb(Loads{0, 0, 0, 0, 9, 0, 0, 0}, 2, 4, 1, 1, 4, 2);
  const Placement nodes = metro::place_eplb(Loads{5, 1, 0, 0}, 1, 4, 2, 2, 4, 2);

  CHECK(replicas_per_expert(layers.layer(0), 4) == Loads{2, 2, 2, 2});
  CHECK(replicas_per_expert(layers.layer(1), 4) == Loads{5, 1, 1, 1});
  CHECK(replicas_per_expert(nodes.slot_to_expert, 4) == Loads{3, 1, 2, 2});
}

TEST_CASE("loads above 2^24 are told apart") {
  constexpr std::int64_t large = std::int64_t{1} << 24;
  REQUIRE(static_cast<float>(large + 1) == static_cast<float>(large));  // the case is a real one

  const Placement placement = metro::place_eplb(Loads{large, large + 1}, 1, 2, 1, 1, 1, 3);

  CHECK(replicas_per_expert(placement.slot_to_expert, 2) == Loads{1, 2});
}

TEST_CASE("more ranks than experts and many times as many slots as experts are filled") {
  const Placement many_ranks = metro::place_eplb(Loads{3, 1, 1, 1}, 1, 4, 1, 1, 9, 1);
  const Placement many_slots = metro::place_eplb(Loads{3, 1, 1, 1}, 1, 4, 1, 1, 9, 40);

  CHECK(replicas_per_expert(many_ranks.slot_to_expert, 4) == Loads{4, 2, 2, 1});
  // Loads are small integers, so the replicas end up in proportion to them: 360 / 6 per token.
  CHECK(replicas_per_expert(many_slots.slot_to_expert, 4) == Loads{180, 60, 60, 60});
}
