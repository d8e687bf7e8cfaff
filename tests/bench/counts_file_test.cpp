#include "bench/counts_file.hpp"

#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>

using metro::ExitCode;
using metro::test::expect_error;

namespace {

std::string file_with(const metro::test::ScratchFolder& folder, const std::string& text) {
  const std::string path = folder.file("counts.json");
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("a counts file gives the rows per expert of every batch") {
  const metro::test::ScratchFolder folder;

  const metro::CountsFile file =
      metro::read_counts(file_with(folder, R"({"num_experts": 3, "counts": [[1, 0, 2], [0, 0, 0]], "model": "x"})"));

  CHECK(file.num_experts == 3);
  CHECK(file.batches == std::vector<std::vector<std::int32_t>>{{1, 0, 2}, {0, 0, 0}});
}

TEST_CASE("ids made for counts have these counts, in a mixed order that is the same every time") {
  const std::vector<std::int32_t> counts{20, 0, 30, 1};

  const auto ids = metro::ids_with_counts(counts, 5);

  for (std::int32_t expert = 0; expert < 4; ++expert) {
    CHECK(std::count(ids.begin(), ids.end(), expert) == counts[static_cast<std::size_t>(expert)]);
  }
  CHECK_FALSE(std::is_sorted(ids.begin(), ids.end()));
  CHECK(metro::ids_with_counts(counts, 5) == ids);
  CHECK(metro::ids_with_counts(counts, 6) != ids);
}

TEST_CASE("a counts file that is wrong is refused with what is wrong") {
  const metro::test::ScratchFolder folder;
  const auto refuse = [&](const std::string& text, std::initializer_list<const char*> parts) {
    const std::string path = file_with(folder, text);
    expect_error(ExitCode::input, parts, [&] { metro::read_counts(path); });
  };

  expect_error(ExitCode::input, {"none.json"}, [&] { metro::read_counts(folder.file("none.json")); });
  refuse("{", {"counts.json"});
  refuse("[]", {"counts.json", "\"num_experts\" and \"counts\""});
  refuse(R"({"num_experts": 2})", {"\"num_experts\" and \"counts\""});
  refuse(R"({"num_experts": 0, "counts": [[]]})", {"\"num_experts\" = 0", "from 1 to 65536"});
  refuse(R"({"num_experts": "2", "counts": [[1, 2]]})", {"\"num_experts\" = \"2\""});
  refuse(R"({"num_experts": 2, "counts": []})", {"at least one batch"});
  refuse(R"({"num_experts": 2, "counts": [[1, 2], [1]]})", {"batch 1", "num_experts = 2 integers"});
  refuse(R"({"num_experts": 2, "counts": [[1, -2]]})", {"batch 0", "-2 for expert 1"});
  refuse(R"({"num_experts": 2, "counts": [[1.5, 2]]})", {"batch 0", "1.5 for expert 0"});
  refuse(R"({"num_experts": 2, "counts": [[16777216, 1]]})", {"1 for expert 1", "at most 16777216 in a batch"});
}
