// `metro bench load`: what it reports besides times, which no test looks at.
#include "bench/load_bench.hpp"
#include "base/file.hpp"
#include "support/expect_error.hpp"
#include "support/model_fixture.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <memory>

using metro::ExitCode;
using metro::LoadBenchOptions;
using metro::test::expect_error;
using nlohmann::json;

TEST_CASE("bench load reports loading beside the plain read for each number of threads, on paper and in JSON") {
  const metro::test::ScratchFolder folder;
  const metro::test::ScratchCheckpoint file(metro::test::family_folder("qwen3_moe_mixed"));
  const auto self = metro::make_self_transport();
  const LoadBenchOptions options{file.path(), {2, 1}, 7, folder.file("out.json")};
  const std::string path = folder.file("printed.txt");
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(path.c_str(), "w"), &std::fclose);
    REQUIRE(out != nullptr);

    metro::bench_load(options, *self, out.get());
  }

  // Everything in the file is read: one rank has all experts.
  std::int64_t num_bytes = 0;
  const metro::CheckpointReader reader(file.path());
  for (const auto& [name, tensor] : reader.tensors()) {
    num_bytes += tensor.num_bytes();
  }
  const std::string printed = metro::read_file(path, ExitCode::input);
  const std::string counted = std::to_string(num_bytes) + " bytes by 1 rank";
  for (const char* text : {counted.c_str(), "load average", "page cache warm", "memory touched", "plain", "share",
                           "first load, into memory that nobody has touched", "on 2 threads"}) {
    CAPTURE(text);
    CHECK(printed.find(text) != std::string::npos);
  }
  const json document = json::parse(metro::read_file(options.json_path, ExitCode::input));
  CHECK(document.at("benchmark") == "load");
  CHECK(document.at("bytes_sum") == num_bytes);
  CHECK(document.at("bytes_max") == num_bytes);
  CHECK(document.at("first_load_s") > 0.0);
  REQUIRE(document.at("settings").size() == 2);
  CHECK(document.at("settings").at(0).at("threads") == 2);
  const json& setting = document.at("settings").at(1);
  CHECK(setting.at("threads") == 1);
  CHECK(setting.at("samples").size() == 7);
  CHECK(setting.at("share_of_best").get<double>() ==
        Approx(setting.at("load_gb_per_s_max").get<double>() / setting.at("plain_gb_per_s_max").get<double>()));
}

TEST_CASE("bench load refuses options out of range and a file that is no checkpoint") {
  const metro::test::ScratchFolder folder;
  const metro::test::ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  const auto self = metro::make_self_transport();
  metro::write_file_atomically(folder.file("text"), "no HDF5");

  const auto expect = [&](ExitCode code, const LoadBenchOptions& options, std::initializer_list<const char*> texts) {
    expect_error(code, texts, [&] { metro::bench_load(options, *self, stderr); });
  };
  expect(ExitCode::usage, {file.path(), {1}, 6, ""}, {"bench load: --repetitions 6: must be from 7 to 100000"});
  expect(ExitCode::usage, {file.path(), {1, 0}, 7, ""}, {"bench load: --threads 0: must be from 1 to 1024"});
  expect(ExitCode::checkpoint, {folder.file("text"), {1}, 7, ""}, {"text"});
  expect(ExitCode::checkpoint, {folder.file("none"), {1}, 7, ""}, {"none", "No such file"});
}
