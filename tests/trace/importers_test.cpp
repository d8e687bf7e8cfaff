#include "trace/importers.hpp"

#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"
#include "trace/requests_of_trace.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

using metro::CountTable;
using metro::ExitCode;
using metro::RoutingTrace;
using metro::TracePhase;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

const std::string traces = std::string(METRO_TEST_DATA) + "/traces";

std::vector<int> ids(const RoutingTrace& trace, std::int64_t row, std::int64_t layer) {
  const auto experts = trace.experts(row, layer);
  return {experts.begin(), experts.end()};
}

void copy_excerpt(const std::string& name, const ScratchFolder& scratch) {
  std::filesystem::copy(traces + "/" + name, scratch.path(), std::filesystem::copy_options::recursive);
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void expect_refused(const char* kind, const std::string& source, std::initializer_list<const char*> texts) {
  expect_error(ExitCode::input, texts, [&] { metro::import_trace(kind, source, {}); });
}

// Counts of 27 layers of 64 experts: every expert 6, but expert 1 has `count_of_1` and expert 2 the rest.
std::string deepseek_moe_counts(int count_of_1) {
  nlohmann::json document;
  for (int layer = 0; layer < 27; ++layer) {
    for (int expert = 0; expert < 64; ++expert) {
      const int count = expert == 1 ? count_of_1 : expert == 2 ? 12 - count_of_1 : 6;
      document[std::to_string(layer) + "-" + std::to_string(expert)] = {0.5, count, 0.1};
    }
  }
  return document.dump();
}

}  // namespace

TEST_CASE("an excerpt of gpt-oss-20b is imported with its requests, positions and weights") {
  const metro::ImportedTrace imported = metro::import_trace("gpt-oss-20b", traces + "/gpt-oss-20b", {});

  const RoutingTrace& trace = imported.trace;
  CHECK(imported.notes.empty());
  CHECK(trace.model.family == "gpt_oss");
  CHECK(trace.model.num_experts == 32);
  CHECK(trace.model.layers.size() == 24);
  CHECK(trace.num_tokens() == 16 * 24);
  // First bytes of the file, looked at with od.
  CHECK(ids(trace, 0, 0) == std::vector<int>{31, 21, 22, 6});
  CHECK(ids(trace, 0, 1) == std::vector<int>{18, 29, 12, 9});
  CHECK(trace.topk_weight[0] == 0.51171875F);  // bf16 3f03
  CHECK(trace.request[24] == 18);
  CHECK(trace.position[24] == 177);
  CHECK(trace.position[47] == 200);
  CHECK(trace.phase[0] == TracePhase::decode);
  for (std::size_t i = 0; i < trace.topk_weight.size(); i += 4) {
    CHECK(std::abs(std::accumulate(&trace.topk_weight[i], &trace.topk_weight[i] + 4, 0.0F) - 1.0F) < 0.01F);
  }
}

TEST_CASE("an excerpt of DeepSeek-V2-Lite is imported task by task, without what is not there") {
  const metro::ImportedTrace imported = metro::import_trace("deepseek-v2-lite", traces + "/deepseek-v2-lite", {});

  const RoutingTrace& trace = imported.trace;
  CHECK(imported.notes == std::vector<std::string>{"there is no summary.experts.u8: task summary is left out",
                                                   "not every task has weights: the trace has none"});
  CHECK(trace.model.num_experts == 64);
  CHECK(trace.model.layers.front() == 1);
  CHECK(trace.model.layers.back() == 26);
  CHECK(trace.num_tokens() == 80);
  CHECK(ids(trace, 40, 0) == std::vector<int>{8, 26, 56, 57, 60, 11});  // first bytes of law.experts.u8
  CHECK(trace.position[19] == 19);
  CHECK(trace.position[20] == 0);
  CHECK(trace.request[39] == 1);
  CHECK(trace.phase[0] == TracePhase::prefill);
  CHECK_FALSE(trace.has_weights());
}

TEST_CASE("weights are imported when every imported task has them") {
  const ScratchFolder scratch;
  copy_excerpt("deepseek-v2-lite", scratch);
  std::filesystem::remove(scratch.file("law.experts.u8"));

  const RoutingTrace trace = metro::import_trace("deepseek-v2-lite", scratch.path(), {}).trace;

  CHECK(trace.num_tokens() == 40);
  CHECK(trace.topk_weight.size() == 40 * 26 * 6);
  CHECK(trace.topk_weight[0] == 0.0414F);
}

TEST_CASE("a task whose name leads out of the folder is refused") {
  const ScratchFolder scratch;
  const std::string header = "task\tsequence\tn_tokens\ttoken_offset\n";

  for (const std::string task : {"../law", "/etc/law", "a/b"}) {
    write(scratch.file("index.tsv"), header + task + "\t0\t1\t0\n");
    expect_refused("deepseek-v2-lite", scratch.path(), {"index.tsv, line 2: task '", "without a folder"});
  }
}

TEST_CASE("packed files that are damaged are named") {
  const ScratchFolder scratch;
  const std::string folder = scratch.path();
  copy_excerpt("gpt-oss-20b", scratch);

  std::filesystem::resize_file(scratch.file("weights.bf16"), 1000);
  expect_refused("gpt-oss-20b", folder, {"weights.bf16: has 1000 bytes; 36864 weights need 73728"});
  std::filesystem::resize_file(scratch.file("experts.u8"), 96 * 100);
  std::filesystem::resize_file(scratch.file("weights.bf16"), 2 * 96 * 100);
  expect_refused("gpt-oss-20b", folder, {"index.tsv, line 6: tokens 96 to 120; the file of experts has 100"});
  std::filesystem::resize_file(scratch.file("experts.u8"), 100);
  expect_refused("gpt-oss-20b", folder, {"experts.u8: has 100 bytes; tokens of 24 layers and top 4", "multiple of 96"});
  write(scratch.file("experts.u8"), std::string(96, '\x07'));
  std::filesystem::remove(scratch.file("weights.bf16"));
  write(scratch.file("index.tsv"), "request\tfirst_token_pos\tn_decode_tokens\ttoken_offset\n0\t0\t1\t0\n");
  expect_refused("gpt-oss-20b", folder, {"token 0, layer 0: expert 7 twice"});
  write(scratch.file("experts.u8"), std::string(96, '\x40'));
  expect_refused("gpt-oss-20b", folder, {"token 0, layer 0: expert 64", "0 to 31"});
  std::filesystem::remove(scratch.file("experts.u8"));
  expect_refused("gpt-oss-20b", folder, {"experts.u8", "No such file"});
  expect_refused("deepseek-v2-lite", scratch.file("none"), {"none/index.tsv", "No such file"});
}

TEST_CASE("an index that does not fit is named with its line") {
  const ScratchFolder scratch;
  const std::string folder = scratch.path();
  copy_excerpt("gpt-oss-20b", scratch);
  const std::string header = "request\tfirst_token_pos\tn_decode_tokens\ttoken_offset\n";

  write(scratch.file("index.tsv"), "");
  expect_refused("gpt-oss-20b", folder, {"index.tsv", "no header line"});
  write(scratch.file("index.tsv"), "request\ttoken_offset\n0\t0\n");
  expect_refused("gpt-oss-20b", folder, {"index.tsv: has no column first_token_pos"});
  write(scratch.file("index.tsv"), header + "0\t0\t1\t0\n0\t1\n");
  expect_refused("gpt-oss-20b", folder, {"index.tsv, line 3: has 2 columns, the header has 4"});
  write(scratch.file("index.tsv"), header + "0\t0\tmany\t0\n");
  expect_refused("gpt-oss-20b", folder, {"line 2: n_decode_tokens = 'many' must be an integer"});
  write(scratch.file("index.tsv"), header + "0\t0\t-1\t0\n");
  expect_refused("gpt-oss-20b", folder, {"line 2: n_decode_tokens = '-1'"});
  write(scratch.file("index.tsv"), header + "0\t4294967294\t4\t0\n");
  expect_refused("gpt-oss-20b", folder, {"line 2: 4 tokens from position 4294967294", "32 bits"});
  write(scratch.file("index.tsv"), header + "0\t0\t0\t0\n");
  expect_refused("gpt-oss-20b", folder, {"index.tsv: no request has a token"});
  write(scratch.file("index.tsv"), header + "0\t0\t2\t0\n0\t1\t2\t2\n");
  expect_refused("gpt-oss-20b", folder, {"request 0 has position 1 twice"});
  write(scratch.file("index.tsv"), "task\tsequence\tn_tokens\ttoken_offset\nintent\t0\t1\t0\n");
  expect_refused("deepseek-v2-lite", folder, {"no task of index.tsv has a file TASK.experts.u8"});
}

TEST_CASE("tokens drawn from counts have distinct experts and exactly their frequencies in the mean") {
  const CountTable table = metro::import_loads("olmoe-counts", traces + "/olmoe/olmoe_c4.json");
  const RoutingTrace trace =
      metro::import_trace("olmoe-counts", traces + "/olmoe/olmoe_c4.json", {20'000, 128, 3}).trace;

  CHECK(table.model.layers == std::vector<std::int32_t>{0, 7, 15});
  CHECK(table.counts[0] == 15352);
  CHECK(trace.num_tokens() == 20'000);
  CHECK(trace.request.back() == 19'999 / 128);
  metro::check_trace(trace, "drawn");
  const auto drawn =
      metro::loads_of(trace, metro::requests_of(trace, metro::TraceRows::all, metro::TraceRequests::all));
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const double share = static_cast<double>(table.counts[i]) / (1671168.0 / 8.0);
    const double deviation = std::sqrt(20'000.0 * share * (1.0 - share));
    CHECK(std::abs(static_cast<double>(drawn[i]) - 20'000.0 * share) < 5.0 * deviation);
  }
}

TEST_CASE("drawing depends on the seed alone") {
  const std::string source = traces + "/olmoe/mixtral_c4.json";

  const auto first = metro::import_trace("mixtral-counts", source, {500, 100, 3}).trace;
  const auto again = metro::import_trace("mixtral-counts", source, {500, 100, 3}).trace;
  const auto other = metro::import_trace("mixtral-counts", source, {500, 100, 4}).trace;

  CHECK(first.topk_idx == again.topk_idx);
  CHECK(first.topk_idx != other.topk_idx);
  CHECK(first.model.top_k == 2);
  CHECK(first.model.num_experts == 8);
}

TEST_CASE("an expert that every token chose is in every drawn token, one that none chose in none") {
  const ScratchFolder scratch;
  write(scratch.file("counts.json"), R"({"layers": [4], "counts": [[10, 0, 4, 1, 1, 1, 1, 2]]})");

  const RoutingTrace trace = metro::import_trace("mixtral-counts", scratch.file("counts.json"), {300, 100, 1}).trace;

  for (std::int64_t row = 0; row < 300; ++row) {
    const std::vector<int> experts = ids(trace, row, 0);
    CHECK(std::count(experts.begin(), experts.end(), 0) == 1);
    CHECK(std::count(experts.begin(), experts.end(), 1) == 0);
  }
}

TEST_CASE("counts of DeepSeek-MoE-16B are read by layer and expert") {
  const ScratchFolder scratch;
  write(scratch.file("counts.json"), deepseek_moe_counts(10));

  const CountTable table = metro::import_loads("deepseek-moe-counts", scratch.file("counts.json"));

  CHECK(table.model.layers.front() == 1);
  CHECK(table.model.layers.size() == 27);
  CHECK(table.counts[26 * 64 + 1] == 10);
  CHECK(table.counts[26 * 64 + 2] == 2);
}

TEST_CASE("count tables that contradict themselves are refused with their layer") {
  const ScratchFolder scratch;
  const auto refused = [&](const char* kind, const std::string& text, std::initializer_list<const char*> texts) {
    write(scratch.file("counts.json"), text);
    expect_refused(kind, scratch.file("counts.json"), texts);
  };

  refused("mixtral-counts", R"({"layers": [0]})", {"counts.json", "needs a key counts"});
  refused("mixtral-counts", R"({"layers": [0, 1], "counts": [[]]})", {"names 2 layers, counts has 1"});
  refused("mixtral-counts", R"({"layers": [0], "counts": [[1, 2]]})", {"counts[0] must have 8 integers"});
  refused("mixtral-counts", R"({"layers": [0], "counts": [[1, 2, 3, 4, 5, 6, 7, 0.5]]})", {"counts[0][7] must be"});
  refused("mixtral-counts", R"({"layers": [3], "counts": [[1, 1, 1, 1, 1, 1, 1, 2]]})",
          {"layer 3", "sum to 9", "2 times"});
  refused("mixtral-counts", R"({"layers": [3], "counts": [[5, 1, 1, 1, 0, 0, 0, 0]]})",
          {"layer 3: expert 0 was chosen 5 times by 4 tokens"});
  refused("mixtral-counts", R"({"layers": [3], "counts": [[-1, 1, 1, 1, 0, 0, 0, 0]]})", {"layer 3", "-1"});
  refused("mixtral-counts", R"({"layers": [3, 4], "counts": [[1,1,1,1,0,0,0,0], [1,1,2,2,0,0,0,0]]})",
          {"layer 4", "sum to 6"});
  refused("mixtral-counts", R"({"layers": [-1], "counts": [[]]})", {"layers[0] = -1"});
  refused("mixtral-counts", "{", {"counts.json"});
  refused("deepseek-moe-counts", "{}", {"needs a key 0-0"});
  refused("deepseek-moe-counts", R"({"0-0": [1, 2]})", {"0-0 must have three numbers"});
  refused("deepseek-moe-counts", deepseek_moe_counts(200), {"layer 1", "allowed are 0 to"});
}

TEST_CASE("loads are written as a file for placement") {
  const ScratchFolder scratch;
  const CountTable loads = metro::import_loads("gpt-oss-20b", traces + "/gpt-oss-20b");

  metro::write_loads(loads, scratch.file("loads.json"), false);

  const auto document = nlohmann::json::parse(std::ifstream(scratch.file("loads.json")));
  CHECK(document["num_experts"] == 32);
  CHECK(document["loads"].size() == 24);
  for (const auto& layer : document["loads"]) {
    const auto counts = layer.get<std::vector<int>>();
    CHECK(std::accumulate(counts.begin(), counts.end(), 0) == 16 * 24 * 4);
  }
  expect_error(ExitCode::usage, {"loads.json is there already"},
               [&] { metro::write_loads(loads, scratch.file("loads.json"), false); });
  metro::write_loads(loads, scratch.file("loads.json"), true);
}

TEST_CASE("an unknown kind of trace is refused with the kinds there are") {
  expect_error(ExitCode::usage, {"'gptoss'", "gpt-oss-20b", "olmoe-counts"},
               [] { metro::import_trace("gptoss", "x", {}); });
}
