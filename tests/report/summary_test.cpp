#include "report/summary.hpp"

#include "base/file.hpp"
#include "report/metrics_writer.hpp"
#include "report/records.hpp"
#include "report/run_report.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <memory>

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using metro::test::ScratchFolder;

namespace {

std::string printed(const std::function<void(std::FILE*)>& print) {
  const ScratchFolder scratch;
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(scratch.file("out").c_str(), "w"),
                                                              std::fclose);
    REQUIRE(out != nullptr);
    print(out.get());
  }
  return metro::read_file(scratch.file("out"), metro::ExitCode::input);
}

// Gives made-up records to something that has add().
void add_records(auto& taker) {
  taker.add(metro::test::prefill_step());
  taker.add(metro::test::decode_step(1.0, {{4, 3, 5, 2}, {2, 1, 2, 1}}));
  taker.add(metro::test::decode_step(2.0, {{4, 3, 4, 3}, {4, 3, 4, 3}}));
  taker.add(metro::test::request(0, 5, 3, metro::FinishReason::stop));
  taker.add(metro::test::request(1, 7, 1, metro::FinishReason::length));
}

std::string summary_of(const metro::RunStatistics& statistics) {
  return printed([&](std::FILE* out) {
    metro::print_summary({&statistics, metro::test::totals(), true, 2, "some/folder"}, out);
  });
}

}  // namespace

TEST_CASE("the summary says what was done, how fast, and where the time went") {
  metro::RunStatistics statistics;
  add_records(statistics);

  const std::string text = summary_of(statistics);

  CHECK_THAT(text, Contains("2 completed (1 stop, 1 length), 2 rejected, 3 with the custom_id of an earlier line\n"));
  CHECK_THAT(text, Contains("12 prompt, 4 generated, 1 generated tokens/s"));
  CHECK_THAT(text,
             Contains("  prompts     40 tokens computed, 10 to 30 by a rank; 60 taken from blocks of other requests "
                      "(60.0%)\n"));
  CHECK_THAT(text, Contains("4.00 s after 1.50 s of loading: prefill 0.25 s in 1 step, decode 1.00 s in 2 steps"));
  CHECK_THAT(text,
             Contains("first token median 250.0 ms, p95 250.0 ms, p99 250.0 ms, from the request's first prefill"));
  CHECK_THAT(text, !Contains("queueing"));
  CHECK_THAT(text, !Contains("rebalanced"));
  CHECK_THAT(text, Contains("per token   median 750.0 ms"));
  // lambda 3, 1, 3, 3; optimum 2, 1, 3, 3; activated 5 + 2 + 4 + 4 on two ranks; active 4 + 2 + 4 + 4
  CHECK_THAT(text, Contains("busiest rank 2.50, optimum 2.25 (reached in 75.0%), mean rank 1.88; 3.5 distinct"));
  CHECK_THAT(text, Contains("3.0 KiB exchanged (largest rank 1.0 KiB), 4.0 KiB read from the checkpoint"));
  // Two steps of 0.125 s and 0.0625 s in the first of 8 phases, which share 1 + 2 + ... + 8 parts.
  CHECK_THAT(text, Contains("compute          0.250 s      0.125 s    2.8%  attention"));
  CHECK_THAT(text, Contains("waiting          1.250 s      0.625 s   13.9%  for slower ranks"));
  CHECK_THAT(text, EndsWith("some/folder/completions.jsonl, errors.jsonl, metrics.h5\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') <= 25);
}

TEST_CASE("the summary says what rebalancing cost") {
  metro::RunStatistics statistics;
  add_records(statistics);
  statistics.add(metro::test::rebalance(1, {}));
  statistics.add(metro::test::rebalance(2, {}));

  const std::string text = summary_of(statistics);

  // Twice 0.125 s of 4 s.
  CHECK_THAT(text,
             Contains("  rebalanced  2 times in 0.250 s (6.2% of the run): 10 slots changed, 8 experts fetched with "
                      "4.0 KiB exchanged and 1.0 KiB read; balance 0.25 -> 0.75\n"));
}

TEST_CASE("with arrivals the summary says how long requests queued, and counts from their arrival") {
  metro::RunStatistics statistics;
  metro::RequestMetrics request = metro::test::request(0, 5, 3, metro::FinishReason::stop);
  request.arrival_s = 0.125;
  statistics.add(request);

  const std::string text = summary_of(statistics);

  CHECK_THAT(text, Contains("  queueing    median 375.0 ms, p95 375.0 ms, p99 375.0 ms, from the request's arrival"));
  CHECK_THAT(text, Contains("  first token median 625.0 ms, p95 625.0 ms, p99 625.0 ms, from the request's arrival\n"));
}

TEST_CASE("the histogram of lambda has a bar per value, the longest for the most frequent") {
  metro::RunStatistics statistics;
  add_records(statistics);

  const std::string text = summary_of(statistics);

  CHECK_THAT(text, Contains("lambda            1 " + std::string(13, '#') + " "));
  CHECK_THAT(text, Contains("3 " + std::string(40, '#') + "  75.0%"));
}

TEST_CASE("a summary stays short and finite for any lambda, and without decode steps or requests") {
  metro::RunStatistics wide;
  for (std::int32_t lambda = 0; lambda < 300; lambda += 7) {
    wide.add(metro::test::decode_step(0.0, {{300, lambda, 300, lambda}, {1, 1, 1, 1}}));
  }
  const metro::RunStatistics empty;

  const std::string text = summary_of(wide);
  const std::string nothing = summary_of(empty);

  CHECK(std::count(text.begin(), text.end(), '\n') <= 27);
  CHECK_THAT(nothing, Contains("0 completed") && !Contains("lambda") && !Contains("nan") && !Contains("inf"));
}

TEST_CASE("inspecting metrics.h5 prints what ran and the summary that the run printed") {
  const ScratchFolder scratch;
  metro::RunStatistics statistics;
  add_records(statistics);
  {
    metro::MetricsWriter writer(scratch.file("metrics.h5"), metro::test::identity());
    add_records(writer);
    writer.finish(metro::test::totals());
  }

  const std::string text = printed([&](std::FILE* out) { metro::inspect_metrics(scratch.file("metrics.h5"), out); });

  const std::string of_run = printed([&](std::FILE* out) {
    metro::print_summary({&statistics, metro::test::totals(), true, 2, scratch.path().string(), {}, true, "1/4"}, out);
  });
  CHECK_THAT(text, EndsWith(of_run));
  CHECK_THAT(text, Contains("metro 1.2.3 (test)\n") && Contains("model.h5 (digest 0123456789abcdef)"));
  CHECK_THAT(text, Contains("qwen3_moe: 3 layers (2 MoE), hidden 64, heads 4:2 of 16, 4 experts of width 32, top-2"));
  CHECK_THAT(text, Contains("2 ranks on 2 nodes, transport mpi"));
  CHECK_THAT(text, Contains("trivial: 3 slots per rank, 5 slots for 4 experts (1.25x)"));
  CHECK_THAT(text, Contains("2025-01-31T12:00:00Z"));
}

TEST_CASE("the summary of a run that has not ended says so") {
  const ScratchFolder scratch;
  metro::MetricsWriter writer(scratch.file("metrics.h5"), metro::test::identity(), 1);
  add_records(writer);

  const std::string text = printed([&](std::FILE* out) { metro::inspect_metrics(scratch.file("metrics.h5"), out); });

  CHECK_THAT(text, Contains("not ended; so far\n") && Contains("unknown number rejected"));
  CHECK_THAT(text, Contains("12 prompt, 4 generated, 2 generated tokens/s"));  // in the 2.5 s until the last step ended
}

TEST_CASE("the summary of a shard says how much of the input it is, that of a whole input does not") {
  metro::RunStatistics statistics;
  add_records(statistics);

  const std::string shard = printed([&](std::FILE* out) {
    metro::print_summary({&statistics, metro::test::totals(), true, 2, "some/folder", {}, true, "1/4"}, out);
  });

  CHECK_THAT(shard, Contains("  shard       1/4: 10 of 40 lines in the input\n"));
  CHECK_THAT(summary_of(statistics), !Contains("  shard  "));
}

TEST_CASE("the summary tells what earlier parts of the run have done, and that a signal has stopped this one") {
  metro::RunStatistics statistics;
  add_records(statistics);

  const std::string text = printed([&](std::FILE* out) {
    metro::print_summary({&statistics, metro::test::totals(), true, 2, "some/folder", {3, 40, 5, 7}, false}, out);
  });

  CHECK_THAT(text, Contains("stopped by a signal; the same command goes on\n") && !Contains("done\n"));
  CHECK_THAT(
      text,
      Contains("part 3      of the run: 7 requests went on from their tokens; 40 completed and 5 rejected before\n"));
  CHECK_THAT(summary_of(statistics), !Contains("of the run: "));
}

TEST_CASE("bytes are shown in units of 1024") {
  CHECK(metro::human_bytes(1023) == "1023 B");
  CHECK(metro::human_bytes(1536) == "1.5 KiB");
  CHECK(metro::human_bytes(std::int64_t{3} << 40) == "3.0 TiB");
}
