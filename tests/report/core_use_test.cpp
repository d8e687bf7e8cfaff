// Threads that had to share cores are found, whether launchers bind ranks or not.
#include "report/core_use.hpp"

#include "report/records.hpp"
#include "report/run_report.hpp"

#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>

using metro::CoreUse;
using metro::RunIdentity;

namespace {

// Ranks on nodes, bound to cores.
RunIdentity bound(std::vector<std::int64_t> rank_to_node, const std::vector<std::string>& cores, std::int64_t threads) {
  RunIdentity identity = metro::test::identity();
  identity.rank_to_node = std::move(rank_to_node);
  identity.rank_to_host.clear();
  for (const std::int64_t node : identity.rank_to_node) {
    identity.rank_to_host.push_back("node-" + std::to_string(node));
  }
  identity.rank_to_binding.clear();
  for (const std::string& list : cores) {
    identity.rank_to_binding.push_back({"0-1023", "", list});
  }
  identity.threads_per_rank = threads;
  return identity;
}

void check_use(const RunIdentity& identity, std::int64_t threads, std::int64_t cores, const std::string& host) {
  const std::optional<CoreUse> use = metro::core_use(identity);
  REQUIRE(use.has_value());
  CHECK(use->num_threads == threads);
  CHECK(use->num_cores == cores);
  CHECK(use->host == host);
  CHECK(use->is_crowded() == (threads > cores));
}

std::string printed(const RunIdentity& identity) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  metro::print_identity(identity, out);
  std::fclose(out);
  const std::string all(text, size);
  std::free(text);
  return all;
}

}  // namespace

TEST_CASE("a list of numbers is read as Linux writes it, and anything else is none") {
  using Numbers = std::vector<std::int64_t>;
  CHECK(metro::numbers_of_list("0-3,8") == Numbers{0, 1, 2, 3, 8});
  CHECK(metro::numbers_of_list("7") == Numbers{7});
  CHECK(metro::numbers_of_list("5,1-2,2") == Numbers{1, 2, 5});
  for (const char* text : {"", "a", "3-1", "1,", "1-", "-1", "1 2", "1-2-3", "0-99999999999", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(metro::numbers_of_list(text).empty());
  }
}

TEST_CASE("ranks that are not bound share the cores of their node") {
  check_use(bound({0, 0}, {"0-3", "0-3"}, 2), 4, 4, "node-0");
  check_use(bound({0, 0, 0}, {"0-3", "0-3", "0-3"}, 2), 6, 4, "node-0");
}

TEST_CASE("the node with the fewest cores for a thread counts") {
  check_use(bound({0, 1, 1}, {"0-3", "0-3", "0-3"}, 2), 4, 4, "node-1");
  check_use(bound({0, 1, 1}, {"0", "0-3", "0-3"}, 2), 2, 1, "node-0");
}

TEST_CASE("ranks that are bound to the same cores are crowded there, however many cores the node has") {
  check_use(bound({0, 0, 0}, {"0-1", "0-1", "2-9"}, 2), 4, 2, "node-0");
  check_use(bound({0, 0}, {"0-1", "2-9"}, 3), 3, 2, "node-0");
}

TEST_CASE("nothing is said of cores that are not known") {
  CHECK_FALSE(metro::core_use(bound({0, 0}, {}, 2)).has_value());
  CHECK_FALSE(metro::core_use(bound({0, 0}, {"0-3", ""}, 2)).has_value());
}

TEST_CASE("what ran has a warning of shared cores, and only then") {
  using Catch::Matchers::Contains;
  CHECK_THAT(printed(bound({0, 0}, {"0-1", "0-1"}, 2)),
             Contains("  cores       4 threads on 2 cores of node-0: more than cores, so times mean nothing\n"));
  CHECK_THAT(printed(bound({0, 0}, {"0-3", "0-3"}, 2)), !Contains("  cores  "));
  CHECK_THAT(printed(bound({0, 0}, {}, 2)), !Contains("  cores  "));
}
