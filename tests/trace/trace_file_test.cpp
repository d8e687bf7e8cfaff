#include "trace/trace_file.hpp"

#include "hdf5/hdf5_table_writer.hpp"
#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"
#include "support/scratch_folder.hpp"
#include "trace/small_trace.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

using metro::ColumnType;
using metro::ExitCode;
using metro::Hdf5TableWriter;
using metro::RoutingTrace;
using metro::TracePhase;
using metro::TraceWriter;
using metro::test::expect_error;
using metro::test::ScratchFolder;
using metro::test::small_trace;

namespace {

void check_equal(const RoutingTrace& found, const RoutingTrace& expected) {
  CHECK(found.model.family == expected.model.family);
  CHECK(found.model.origin == expected.model.origin);
  CHECK(found.model.num_experts == expected.model.num_experts);
  CHECK(found.model.top_k == expected.model.top_k);
  CHECK(found.model.layers == expected.model.layers);
  CHECK(found.topk_idx == expected.topk_idx);
  CHECK(found.topk_weight == expected.topk_weight);
  CHECK(found.request == expected.request);
  CHECK(found.position == expected.position);
  CHECK(found.token_id == expected.token_id);
  CHECK(found.step == expected.step);
  CHECK(found.phase == expected.phase);
}

// Tokens first .. end - 1 of a trace of two layers and top 2.
RoutingTrace part_of(const RoutingTrace& trace, std::ptrdiff_t first, std::ptrdiff_t end) {
  const auto cut = [](auto& values, std::ptrdiff_t from, std::ptrdiff_t to) {
    values = {values.begin() + from, values.begin() + to};
  };
  RoutingTrace part = trace;
  cut(part.topk_idx, 4 * first, 4 * end);
  cut(part.topk_weight, 4 * first, 4 * end);
  cut(part.request, first, end);
  cut(part.position, first, end);
  cut(part.token_id, first, end);
  cut(part.step, first, end);
  cut(part.phase, first, end);
  return part;
}

// A file as TraceWriter makes it, except for what a test changes: 2 tokens of one layer, 4 experts, top 2.
struct RawFile {
  std::string format = "metro-trace";
  std::int64_t version = 1;
  std::int64_t num_experts = 4;
  std::int64_t top_k = 2;
  std::vector<std::int32_t> layers{0};
  std::vector<std::int64_t> row_shape{1, 2};
  std::vector<std::uint16_t> topk_idx{0, 1, 2, 3};
  std::vector<std::uint32_t> position{0, 1};
  std::vector<std::uint8_t> phase{1, 1};
  bool with_step = true;
  ColumnType request_type = ColumnType::u32;

  void write(const std::string& path) const {
    Hdf5TableWriter file(path, 8);
    file.attribute("format", format);
    file.attribute("version", version);
    file.attribute("family", std::string("qwen3_moe"));
    file.attribute("origin", std::string("test"));
    file.attribute("num_experts", num_experts);
    file.attribute("top_k", top_k);
    file.integers("/layers", {std::ssize(layers)}, layers);
    const std::vector<std::uint32_t> requests{5, 5};
    const std::vector<std::int32_t> tokens{1, 2};
    const std::vector<std::int64_t> steps{0, 1};
    file.append(file.make_column("/topk_idx", ColumnType::u16, row_shape), std::span<const std::uint16_t>(topk_idx));
    if (request_type == ColumnType::u32) {
      file.append(file.make_column("/request", request_type, 0), std::span<const std::uint32_t>(requests));
    } else {
      file.append(file.make_column("/request", request_type, 0), std::span<const std::int32_t>(tokens));
    }
    file.append(file.make_column("/position", ColumnType::u32, 0), std::span<const std::uint32_t>(position));
    file.append(file.make_column("/token_id", ColumnType::i32, 0), std::span<const std::int32_t>(tokens));
    if (with_step) {
      file.append(file.make_column("/step", ColumnType::i64, 0), std::span<const std::int64_t>(steps));
    }
    file.append(file.make_column("/phase", ColumnType::u8, 0), std::span<const std::uint8_t>(phase));
    file.close();
  }
};

void expect_refused(const std::function<void(RawFile&)>& change, std::initializer_list<const char*> texts) {
  const ScratchFolder scratch;
  RawFile raw;
  change(raw);
  raw.write(scratch.file("odd.h5"));

  expect_error(ExitCode::input, {"odd.h5"}, [&] { metro::read_trace(scratch.file("odd.h5")); });
  expect_error(ExitCode::input, texts, [&] { metro::read_trace(scratch.file("odd.h5")); });
}

}  // namespace

TEST_CASE("a trace comes back from its file as it was written") {
  const ScratchFolder scratch;
  RoutingTrace trace = small_trace();
  trace.model.num_experts = 65536;
  trace.topk_idx[5] = 65535;
  trace.request[3] = 4'294'967'295U;
  trace.token_id[0] = RoutingTrace::unknown_token;
  trace.step[1] = std::int64_t{1} << 40;

  metro::write_trace(trace, scratch.file("a.h5"), false);

  check_equal(metro::read_trace(scratch.file("a.h5")), trace);
}

TEST_CASE("weights may be absent") {
  const ScratchFolder scratch;
  RoutingTrace trace = small_trace();
  trace.topk_weight.clear();

  metro::write_trace(trace, scratch.file("a.h5"), false);

  check_equal(metro::read_trace(scratch.file("a.h5")), trace);
}

TEST_CASE("tokens appended in parts give the same trace as all at once") {
  const std::ptrdiff_t part = GENERATE(1, 2, 4, 9);
  const ScratchFolder scratch;
  const RoutingTrace trace = small_trace();
  TraceWriter writer(scratch.file("a.h5"), trace.model, true);

  for (std::ptrdiff_t first = 0; first < 9; first += part) {
    writer.append(part_of(trace, first, std::min<std::ptrdiff_t>(9, first + part)));
    writer.append(part_of(trace, first, first));  // a step in which no row was recorded
  }
  writer.close();

  check_equal(metro::read_trace(scratch.file("a.h5")), trace);
}

TEST_CASE("what was flushed can be read from the file of a process that ended") {
  const ScratchFolder scratch;
  const RoutingTrace trace = small_trace();
  TraceWriter writer(scratch.file("a.h5"), trace.model, true);
  writer.append(part_of(trace, 0, 5));
  writer.flush();

  std::filesystem::copy_file(scratch.file("a.h5"), scratch.file("left.h5"));

  check_equal(metro::read_trace(scratch.file("left.h5")), part_of(trace, 0, 5));
}

TEST_CASE("a trace without tokens is a trace") {
  const ScratchFolder scratch;
  const RoutingTrace trace = part_of(small_trace(), 0, 0);

  metro::write_trace(trace, scratch.file("a.h5"), false);

  CHECK(metro::read_trace(scratch.file("a.h5")).num_tokens() == 0);
}

TEST_CASE("the experts of a token are found by its row and the recorded layer") {
  const RoutingTrace trace = small_trace();

  CHECK(std::vector<int>(trace.experts(4, 0).begin(), trace.experts(4, 0).end()) == std::vector<int>{4, 5});
  CHECK(std::vector<int>(trace.experts(4, 1).begin(), trace.experts(4, 1).end()) == std::vector<int>{1, 3});
}

TEST_CASE("a trace in the way is replaced only on request, and something else never") {
  const ScratchFolder scratch;
  const RoutingTrace trace = small_trace();
  metro::write_trace(trace, scratch.file("a.h5"), false);
  std::filesystem::create_directory(scratch.file("folder"));

  expect_error(ExitCode::usage, {"a.h5 is there already", "--overwrite"},
               [&] { metro::write_trace(trace, scratch.file("a.h5"), false); });
  expect_error(ExitCode::usage, {"cannot create", "folder", "plain file"},
               [&] { metro::write_trace(trace, scratch.file("folder"), true); });
  metro::write_trace(part_of(trace, 0, 2), scratch.file("a.h5"), true);
  check_equal(metro::read_trace(scratch.file("a.h5")), part_of(trace, 0, 2));
  expect_error(ExitCode::usage, {"cannot create", "none/a.h5"},
               [&] { metro::write_trace(trace, scratch.file("none/a.h5"), false); });
}

TEST_CASE("a file that is no trace of this version is refused") {
  const ScratchFolder scratch;
  std::ofstream(scratch.file("text.h5")) << "no HDF5";

  expect_error(ExitCode::input, {"nothing.h5", "cannot open"}, [&] { metro::read_trace(scratch.file("nothing.h5")); });
  expect_error(ExitCode::input, {"text.h5", "cannot open"}, [&] { metro::read_trace(scratch.file("text.h5")); });
  expect_refused([](RawFile& raw) { raw.format = "metro-metrics"; }, {"is not a trace", "metro-trace"});
  expect_refused([](RawFile& raw) { raw.version = 2; }, {"version 2", "reads 1"});
}

TEST_CASE("a truncated file is refused") {
  const ScratchFolder scratch;
  metro::write_trace(small_trace(), scratch.file("a.h5"), false);
  std::filesystem::resize_file(scratch.file("a.h5"), std::filesystem::file_size(scratch.file("a.h5")) * 3 / 4);

  expect_error(ExitCode::input, {"a.h5", "truncated"}, [&] { metro::read_trace(scratch.file("a.h5")); });
}

TEST_CASE("attributes and datasets that are missing or do not fit are named") {
  expect_refused([](RawFile& raw) { raw.num_experts = 0; }, {"num_experts = 0", "1 to 65536"});
  expect_refused([](RawFile& raw) { raw.num_experts = 70'000; }, {"num_experts = 70000"});
  expect_refused([](RawFile& raw) { raw.top_k = 5; }, {"top_k = 5", "experts, 4"});
  expect_refused([](RawFile& raw) { raw.layers = {}; }, {"layers"});
  expect_refused([](RawFile& raw) { raw.layers = {3, 3}; }, {"layers", "[3, 3]", "ascending"});
  expect_refused([](RawFile& raw) { raw.row_shape = {2, 1}; }, {"/topk_idx", "[2, 2, 1]", "[2, 1, 2]"});
  expect_refused([](RawFile& raw) { raw.topk_idx = {0, 1}; }, {"/topk_idx", "[1, 1, 2]", "[2, 1, 2]"});
  expect_refused([](RawFile& raw) { raw.position = {0}; }, {"/position", "[1]", "[2]"});
  expect_refused([](RawFile& raw) { raw.with_step = false; }, {"/step", "missing"});
  expect_refused([](RawFile& raw) { raw.request_type = ColumnType::i32; }, {"/request", "type"});
}

TEST_CASE("values that cannot be are named with their token and layer") {
  expect_refused([](RawFile& raw) { raw.topk_idx = {0, 1, 4, 3}; }, {"token 1, layer 0: expert 4", "0 to 3"});
  expect_refused([](RawFile& raw) { raw.topk_idx = {0, 1, 3, 3}; }, {"token 1, layer 0: expert 3 twice"});
  expect_refused([](RawFile& raw) { raw.phase = {1, 2}; }, {"token 1: phase 2", "0 (prefill) and 1 (decode)"});
  expect_refused([](RawFile& raw) { raw.position = {6, 6}; }, {"request 5 has position 6 twice"});
}

TEST_CASE("a trace that contradicts itself is not written") {
  const ScratchFolder scratch;
  RoutingTrace short_ids = small_trace();
  short_ids.topk_idx.pop_back();
  RoutingTrace odd_weight = small_trace();
  odd_weight.topk_weight[9] = std::numeric_limits<float>::quiet_NaN();

  expect_error(ExitCode::input, {"topk_idx has 35 values, 9 tokens need 36"},
               [&] { metro::write_trace(short_ids, scratch.file("a.h5"), false); });
  expect_error(ExitCode::input, {"token 2: a weight that is not a finite number"},
               [&] { metro::write_trace(odd_weight, scratch.file("a.h5"), false); });
  CHECK(std::filesystem::is_empty(scratch.path()));
}

TEST_CASE("a disk that fills up under a trace is the fault of the machine") {
  const ScratchFolder scratch;
  const metro::test::FileSizeLimit limit(2000);

  expect_error(ExitCode::machine, {"a.h5"}, [&] { metro::write_trace(small_trace(), scratch.file("a.h5"), false); });
}
