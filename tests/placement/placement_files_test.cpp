#include "base/file.hpp"
#include "placement/loads.hpp"
#include "placement/placement.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <string>

using metro::ExitCode;
using metro::Placement;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

// A file in a folder of its own, read by `read`.
template <class F>
auto read_text(const std::string& text, F read) {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("f.json"), text);
  return read(folder.file("f.json"));
}

Placement placement_of(const std::string& text) {
  return read_text(text, metro::read_placement);
}

std::vector<std::int64_t> loads_of(const std::string& text) {
  return read_text(text, [](const std::string& path) { return metro::read_loads(path, 2, 3); });
}

const std::string head = R"({"num_experts":3,"num_ranks":2,"slots_per_rank":2,"physical_to_logical_map":)";

}  // namespace

TEST_CASE("a placement that was written reads back equal, empty slots included") {
  const ScratchFolder folder;
  Placement placement = metro::place_trivial(3, 5, 4, 2);
  placement.slot_to_expert[6] = Placement::empty_slot;

  metro::write_placement(placement, folder.file("p.json"));
  const Placement again = metro::read_placement(folder.file("p.json"));

  CHECK(again.num_layers == 3);
  CHECK(again.num_experts == 5);
  CHECK(again.num_ranks == 4);
  CHECK(again.slots_per_rank == 2);
  CHECK(again.slot_to_expert == placement.slot_to_expert);
}

TEST_CASE("a placement file is one JSON object with one line per layer") {
  const ScratchFolder folder;

  metro::write_placement(metro::place_trivial(2, 3, 2, 2), folder.file("p.json"));

  CHECK(metro::read_file(folder.file("p.json"), ExitCode::usage) == head + "[\n[0,1,2,0],\n[0,1,2,0]\n]}\n");
}

TEST_CASE("keys of other programs in a placement file are ignored") {
  const Placement placement =
      placement_of(R"({"logical_count": [1], "note": "x", )" + head.substr(1) + "[[2,1,-1,0]]}");

  CHECK(placement.slot_to_expert == std::vector<std::int32_t>{2, 1, -1, 0});
}

TEST_CASE("every key of a placement file is needed") {
  expect_error(ExitCode::usage, {"f.json", "\"num_experts\" is missing"}, [] { placement_of("{}"); });
  expect_error(ExitCode::usage, {"\"num_ranks\" is missing"}, [] { placement_of(R"({"num_experts":3})"); });
  expect_error(ExitCode::usage, {"\"slots_per_rank\" is missing"},
               [] { placement_of(R"({"num_experts":3,"num_ranks":2})"); });
  expect_error(ExitCode::usage, {"\"physical_to_logical_map\" is missing"},
               [] { placement_of(R"({"num_experts":3,"num_ranks":2,"slots_per_rank":2})"); });
}

TEST_CASE("a placement file that is missing or no JSON object is refused") {
  const ScratchFolder folder;

  expect_error(ExitCode::usage, {"none.json", "No such file"},
               [&] { metro::read_placement(folder.file("none.json")); });
  expect_error(ExitCode::usage, {"f.json", "object, not array"}, [] { placement_of("[1]"); });
  expect_error(ExitCode::usage, {"f.json", "line 1"}, [] { placement_of("{"); });
}

TEST_CASE("counts of a placement file must be positive 32-bit integers that make enough slots") {
  const auto with_counts = [](const char* experts, const char* ranks, const char* slots) {
    placement_of(fmt::format(R"({{"num_experts":{},"num_ranks":{},"slots_per_rank":{},"physical_to_logical_map":[]}})",
                             experts, ranks, slots));
  };

  expect_error(ExitCode::usage, {"num_experts = 0", "1 to 2147483647"}, [&] { with_counts("0", "2", "2"); });
  expect_error(ExitCode::usage, {"num_ranks = -2", "1 to"}, [&] { with_counts("3", "-2", "2"); });
  expect_error(ExitCode::usage, {"slots_per_rank = 2.0", "integer"}, [&] { with_counts("3", "2", "2.0"); });
  expect_error(ExitCode::usage, {"num_ranks = \"2\"", "integer"}, [&] { with_counts("3", "\"2\"", "2"); });
  expect_error(ExitCode::usage, {"num_ranks = 18446744073709551615"},
               [&] { with_counts("3", "18446744073709551615", "2"); });
  expect_error(ExitCode::usage, {"num_ranks * slots_per_rank = 4", "num_experts = 5"},
               [&] { with_counts("5", "2", "2"); });
  expect_error(ExitCode::usage, {"num_ranks * slots_per_rank = 4000000000", "2147483647"},
               [&] { with_counts("5", "2000000000", "2"); });
}

TEST_CASE("a wrong row or entry of a placement file is named by its place") {
  expect_error(ExitCode::usage, {"physical_to_logical_map: must be an array", "not number"},
               [] { placement_of(head + "7}"); });
  expect_error(ExitCode::usage, {"physical_to_logical_map[1]", "4 integers", "not 3 entries"},
               [] { placement_of(head + "[[0,1,2,0],[0,1,2]]}"); });
  expect_error(ExitCode::usage, {"physical_to_logical_map[0]", "not number"}, [] { placement_of(head + "[5]}"); });
  expect_error(ExitCode::usage, {"physical_to_logical_map[0][3] = 3", "-1 to 2"},
               [] { placement_of(head + "[[0,1,2,3]]}"); });
  expect_error(ExitCode::usage, {"physical_to_logical_map[0][0] = -2", "-1 to 2"},
               [] { placement_of(head + "[[-2,1,2,0]]}"); });
  expect_error(ExitCode::usage, {"physical_to_logical_map[0][2] = null", "integer"},
               [] { placement_of(head + "[[0,1,null,2]]}"); });
  expect_error(ExitCode::usage, {"physical_to_logical_map[0][1] = array"},
               [] { placement_of(head + "[[0,[\"a list that is too long to be worth repeating\"],1,2]]}"); });
}

TEST_CASE("an expert without a slot in a placement file is named with the layer") {
  expect_error(ExitCode::usage, {"f.json", "expert 1", "MoE layer 1"},
               [] { placement_of(head + "[[0,1,2,0],[0,2,2,-1]]}"); });
}

TEST_CASE("a placement that cannot be written names the file") {
  const ScratchFolder folder;

  expect_error(ExitCode::usage, {"none/p.json"},
               [&] { metro::write_placement(metro::place_trivial(1, 2, 1, 2), folder.file("none/p.json")); });
}

TEST_CASE("loads are read row by row and may need all 63 bits") {
  const auto loads = loads_of(R"({"num_experts":3,"loads":[[1,0,9223372036854775807],[4,5,6]],"steps":12})");

  CHECK(loads == std::vector<std::int64_t>{1, 0, 9223372036854775807, 4, 5, 6});
}

TEST_CASE("a loads file that does not fit the model is refused with both numbers") {
  expect_error(ExitCode::usage, {"f.json", "num_experts = 4", "model has 3"},
               [] { loads_of(R"({"num_experts":4,"loads":[]})"); });
  expect_error(ExitCode::usage, {"f.json", "has 1 layers", "2 MoE layers"},
               [] { loads_of(R"({"num_experts":3,"loads":[[1,2,3]]})"); });
}

TEST_CASE("what is wrong in a loads file is named by key and place") {
  const ScratchFolder folder;

  expect_error(ExitCode::usage, {"none.json", "No such file"},
               [&] { metro::read_loads(folder.file("none.json"), 2, 3); });
  expect_error(ExitCode::usage, {"f.json", "\"num_experts\" is missing"}, [] { loads_of("{}"); });
  expect_error(ExitCode::usage, {"f.json", "\"loads\" is missing"}, [] { loads_of(R"({"num_experts":3})"); });
  expect_error(ExitCode::usage, {"loads: must be an array", "not object"},
               [] { loads_of(R"({"num_experts":3,"loads":{}})"); });
  expect_error(ExitCode::usage, {"loads[1]", "3 integers", "not 2 entries"},
               [] { loads_of(R"({"num_experts":3,"loads":[[1,2,3],[1,2]]})"); });
  expect_error(ExitCode::usage, {"loads[0][1] = -2", "0 or more"},
               [] { loads_of(R"({"num_experts":3,"loads":[[1,-2,3],[1,2,3]]})"); });
  expect_error(ExitCode::usage, {"loads[1][2] = 2.5", "integer"},
               [] { loads_of(R"({"num_experts":3,"loads":[[1,2,3],[1,2,2.5]]})"); });
  expect_error(ExitCode::usage, {"loads[0][0] = 9223372036854775808", "integer"},
               [] { loads_of(R"({"num_experts":3,"loads":[[9223372036854775808,2,3],[1,2,3]]})"); });
}
