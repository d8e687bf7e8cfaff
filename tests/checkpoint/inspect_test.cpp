// What `metro inspect` says.
#include "checkpoint/inspect.hpp"

#include "checkpoint/folders.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <cstdio>
#include <fstream>
#include <memory>

using Catch::Matchers::Contains;
using metro::test::inspect;
using metro::test::ScratchFolder;

TEST_CASE("inspect prints the model, the source files and every dataset") {
  const ScratchFolder scratch;

  const std::string text = inspect(metro::test::convert_into(scratch, metro::test::tiny), false);

  CHECK_THAT(text, Contains("written by metro "));
  CHECK_THAT(text, Contains("qwen3_moe"));
  CHECK_THAT(text, Contains("6, 6 of them with experts"));
  CHECK_THAT(text, Contains("4 query heads, 2 KV heads, 32 elements each"));
  CHECK_THAT(text, Contains("32 of width 64, top 4, weights renormalised: yes"));
  CHECK_THAT(text, Contains("tokenizer.json") && Contains("120.5 KiB"));
  CHECK_THAT(text, Contains("tensors (69, "));
  CHECK_THAT(text, Contains("/layers/005/experts/gate_up") && Contains("[32, 128, 128]") && Contains("1.0 MiB") &&
                       Contains("32 experts of 32.0 KiB"));
  CHECK_THAT(text, Contains("/norm") && Contains("256 B"));
  CHECK_THAT(text, !Contains("verified"));
}

TEST_CASE("inspect says what is special about dense layers and a tied head") {
  const ScratchFolder scratch;

  const std::string text = inspect(metro::test::convert_into(scratch, metro::test::dense_and_moe), false);

  CHECK_THAT(text, Contains("4, 2 of them with experts") && Contains("embedding is also the head"));
  CHECK_THAT(text, Contains("dense MLP width") && Contains("/layers/000/dense/gate_up"));
  CHECK_THAT(text, Contains("weights renormalised: no"));
}

TEST_CASE("inspect with verification says that all tensors have their digests") {
  const ScratchFolder scratch;

  const std::string text = inspect(metro::test::convert_into(scratch, metro::test::sharded), true);

  CHECK_THAT(text, Contains("verified: all 25 tensors have their digests (454.5 KiB read)"));
}

TEST_CASE("inspect with verification names the damaged tensor") {
  const ScratchFolder scratch;
  const std::string path = metro::test::convert_into(scratch, metro::test::sharded);
  const std::int64_t offset = metro::CheckpointReader(path).info("/layers/001/gate").file_offset;
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset);
    file.write("\x7f\x7f", 2);
    REQUIRE(file.good());
  }

  metro::test::expect_error(metro::ExitCode::checkpoint, {"tensor /layers/001/gate", "damaged"},
                            [&] { inspect(path, true); });
  CHECK_NOTHROW(inspect(path, false));
}

TEST_CASE("a description that cannot be written is an error") {
  const ScratchFolder scratch;
  const std::string path = metro::test::convert_into(scratch, metro::test::sharded);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> full(std::fopen("/dev/full", "w"), std::fclose);
  REQUIRE(full != nullptr);

  metro::CheckpointReader reader(path);
  metro::test::expect_error(metro::ExitCode::usage, {"cannot write"},
                            [&] { metro::inspect_checkpoint(reader, false, full.get()); });
}
