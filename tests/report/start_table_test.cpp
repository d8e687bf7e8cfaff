// The table at the start of a run: what each rank allocates, and how it is bound.
#include "report/records.hpp"
#include "report/run_report.hpp"

#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using Catch::Matchers::Contains;
using metro::RankBinding;

namespace {

std::string table_with(const std::vector<RankBinding>& rank_to_binding, const std::string& prefill = {},
                       const std::string& prefixes = {}) {
  metro::RunIdentity identity = metro::test::identity();
  identity.rank_to_binding = rank_to_binding;
  metro::MemoryPlan plan;
  plan.dense = 1 << 20;
  const metro::StartTable table{.identity = &identity,
                                .sharing = "as told",
                                .decode = {},
                                .prefill = prefill,
                                .prefixes = prefixes,
                                .memory_of_rank = {plan, plan},
                                .free_of_rank = {1 << 30, 1 << 30},
                                .kv_tokens_per_rank = 100,
                                .max_context = 10};
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  metro::print_start_table(table, out);
  std::fclose(out);
  const std::string printed(text, size);
  std::free(text);
  return printed;
}

}  // namespace

TEST_CASE("the table at the start names the CPUs of each rank") {
  const std::string text = table_with({{"0-3,8", "", ""}, {"4-7", "", ""}});

  CHECK_THAT(text, Contains("may take  CPUs\n") && Contains("1.0 GiB  0-3,8\n") && Contains("1.0 GiB  4-7\n"));
  CHECK_THAT(text, !Contains("CUDA"));
}

TEST_CASE("the table at the start names the GPUs of each rank when one has some") {
  const std::string text = table_with({{"0-3", "", ""}, {"4-7", "2,3", ""}});

  CHECK_THAT(text, Contains("may take  CPUs          CUDA_VISIBLE_DEVICES\n"));
  CHECK_THAT(text, Contains("1.0 GiB  0-3           -\n") && Contains("1.0 GiB  4-7           2,3\n"));
}

TEST_CASE("the table at the start names the device of each rank when ranks compute on devices") {
  const std::string text = table_with({{"0-3", "", "", "0 NVIDIA H200 0000:17:00.0, 139.8 GiB"},
                                       {"4-7", "", "", "1 NVIDIA H200 0000:18:00.0, 139.8 GiB, shared"}});

  CHECK_THAT(text, Contains("may take  CPUs          device\n"));
  CHECK_THAT(text, Contains("1.0 GiB  0-3           0 NVIDIA H200 0000:17:00.0, 139.8 GiB\n"));
  CHECK_THAT(text, Contains("1.0 GiB  4-7           1 NVIDIA H200 0000:18:00.0, 139.8 GiB, shared\n"));
  CHECK_THAT(text, !Contains("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("the table at the start has no columns for a binding that is not known") {
  const std::string text = table_with({});

  CHECK_THAT(text, Contains("may take\n") && Contains("1.0 GiB\n") && !Contains("CPUs"));
}

TEST_CASE("the table at the start says how prefill is computed where that is not as ever") {
  CHECK_THAT(table_with({}), !Contains("  prefill  "));
  CHECK_THAT(table_with({}, "experts by cuBLAS"), Contains("\n  prefill     experts by cuBLAS\n"));
}

TEST_CASE("the table at the start says whether prompts share blocks") {
  CHECK_THAT(table_with({}, {}, "shared"), Contains("in the KV cache of a rank\n  prefixes    shared\n"));
}
