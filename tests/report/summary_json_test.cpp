// The JSON of a metrics.h5 has what the records say, in numbers that add up by hand.
#include "report/summary_json.hpp"

#include "base/json.hpp"
#include "report/metrics_writer.hpp"
#include "report/records.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>

using metro::test::ScratchFolder;
using nlohmann::json;

namespace {

void write_run(const std::string& path, const metro::RunIdentity& identity, bool ends) {
  metro::MetricsWriter writer(path, identity, 1);
  writer.add(metro::test::prefill_step());
  writer.add(metro::test::decode_step(1.0, {{4, 3, 5, 2}, {2, 1, 2, 1}}));
  writer.add(metro::test::decode_step(2.0, {{4, 3, 4, 3}, {4, 3, 4, 3}}));
  writer.add(metro::test::request(0, 5, 3, metro::FinishReason::stop));
  writer.add(metro::test::request(1, 7, 1, metro::FinishReason::length));
  if (ends) {
    writer.finish(metro::test::totals());
  }
}

json inspected(const std::string& path) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  metro::inspect_metrics_as_json(path, out);
  std::fclose(out);
  const std::string line(text, size);
  std::free(text);
  CHECK(line.find('\n') == line.size() - 1);
  return metro::parse_json(line, "inspect", metro::ExitCode::input);
}

}  // namespace

TEST_CASE("the JSON of a run says what ran, how long, and how many experts were activated") {
  const ScratchFolder scratch;
  write_run(scratch.file("metrics.h5"), metro::test::identity(), true);

  const json run = inspected(scratch.file("metrics.h5"));

  CHECK(run.at("build") == "metro 1.2.3 (test)");
  CHECK(run.at("checkpoint_digest") == "0123456789abcdef");
  CHECK(run.at("deck") == "[model]\ncheckpoint = \"model.h5\"\n");
  CHECK(run.at("decode_policy") == "exact");
  CHECK(run.at("shard") == "1/4");
  CHECK(run.at("ranks") == 2);
  CHECK(run.at("nodes") == 2);
  CHECK(run.at("cores") == json{{"threads", 2}, {"cores", 2}, {"host", "node-a"}, {"is_crowded", false}});
  CHECK(run.at("has_ended") == true);
  CHECK(run.at("run_s") == 4.0);
  CHECK(run.at("load_s") == 1.5);
  CHECK(run.at("num_rejected") == 2);
  CHECK(run.at("prompt_tokens") == 12);
  CHECK(run.at("prompt_tokens_computed") == json{30, 10});
  CHECK(run.at("prompt_tokens_shared") == json{0, 60});
  CHECK(run.at("generated_tokens") == 4);
  CHECK(run.at("completed") == 2);
  CHECK(run.at("decode_steps") == 2);
  CHECK(run.at("decode_s") == 1.0);
  CHECK(run.at("decode_phase_mean_s").at("compute") == 0.125);  // two steps of 0.0625, the prefill step left out
  CHECK(run.at("decode_phase_mean_s").at("scheduling") == 1.0);
  CHECK(run.at("lambda") == 2.5);
  CHECK(run.at("optimum") == 2.25);
  CHECK(run.at("active") == 3.5);
}

TEST_CASE("the JSON of a run that has not ended has the time so far, and no totals") {
  const ScratchFolder scratch;
  metro::RunIdentity identity = metro::test::identity();
  identity.rank_to_binding.clear();
  write_run(scratch.file("metrics.h5"), identity, false);

  const json run = inspected(scratch.file("metrics.h5"));

  CHECK(run.at("has_ended") == false);
  CHECK(run.at("run_s") == 2.5);
  CHECK(run.at("load_s").is_null());
  CHECK(run.at("num_rejected").is_null());
  CHECK(run.at("cores").is_null());
}
