// The trace that a run records: complete, the same on any number of ranks, and in agreement with metrics.h5.
#include "engine/run_on_tiny.hpp"
#include "report/metrics_reader.hpp"
#include "trace/trace_file.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <set>

using metro::RoutingTrace;
using metro::TracePhase;
using metro::test::RunOnTinyModel;

namespace {

using TokenName = std::pair<std::uint32_t, std::uint32_t>;  // request, position

// Row of each token.
std::map<TokenName, std::int64_t> rows_of(const RoutingTrace& trace) {
  std::map<TokenName, std::int64_t> rows;
  for (std::int64_t row = 0; row < trace.num_tokens(); ++row) {
    const auto i = static_cast<std::size_t>(row);
    rows[{trace.request[i], trace.position[i]}] = row;
  }
  return rows;
}

bool same_choices(const RoutingTrace& a, std::int64_t row_of_a, const RoutingTrace& b, std::int64_t row_of_b) {
  bool same = a.token_id[static_cast<std::size_t>(row_of_a)] == b.token_id[static_cast<std::size_t>(row_of_b)];
  for (std::int64_t layer = 0; layer < a.model.num_layers(); ++layer) {
    const auto of_a = a.experts(row_of_a, layer);
    const auto of_b = b.experts(row_of_b, layer);
    same = same && std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
  }
  return same;
}

// Distinct experts of each decode step and layer, from the trace alone.
std::map<std::int64_t, std::vector<std::int32_t>> active_of_steps(const RoutingTrace& trace) {
  std::map<std::int64_t, std::vector<std::set<std::uint16_t>>> experts;
  for (std::int64_t row = 0; row < trace.num_tokens(); ++row) {
    const auto i = static_cast<std::size_t>(row);
    if (trace.phase[i] == TracePhase::decode) {
      auto& layers = experts[trace.step[i]];
      layers.resize(static_cast<std::size_t>(trace.model.num_layers()));
      for (std::int64_t layer = 0; layer < trace.model.num_layers(); ++layer) {
        const auto chosen = trace.experts(row, layer);
        layers[static_cast<std::size_t>(layer)].insert(chosen.begin(), chosen.end());
      }
    }
  }
  std::map<std::int64_t, std::vector<std::int32_t>> active;
  for (const auto& [step, layers] : experts) {
    for (const auto& distinct : layers) {
      active[step].push_back(static_cast<std::int32_t>(distinct.size()));
    }
  }
  return active;
}

// Every request computes its whole prompt.
constexpr const char* unshared = "kv.share_prefixes = \"off\"\n";

}  // namespace

TEST_CASE("a run records the experts of every token once, the same on any number of ranks") {
  const auto transport = metro::make_mpi_transport(60.0);

  const RunOnTinyModel run(*transport, "exact", unshared);

  if (transport->rank() == 0) {
    const RoutingTrace trace = metro::read_trace(run.output("trace.h5"));
    const auto alone = metro::make_self_transport();
    const RunOnTinyModel reference(*alone, "exact", unshared);
    const RoutingTrace expected = metro::read_trace(reference.output("trace.h5"));
    const auto rows = rows_of(trace), expected_rows = rows_of(expected);
    REQUIRE(rows.size() == expected_rows.size());
    for (const auto& [name, row] : expected_rows) {
      CAPTURE(name.first, name.second);
      REQUIRE(rows.count(name) == 1);
      CHECK(same_choices(trace, rows.at(name), expected, row));
    }
    CHECK(trace.model.layers == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  }
  transport->barrier();
}

TEST_CASE("the trace and the metrics of a run count the same active experts and tokens") {
  const auto transport = metro::make_mpi_transport(60.0);

  const RunOnTinyModel run(*transport, "even", unshared);

  if (transport->rank() == 0) {
    const RoutingTrace trace = metro::read_trace(run.output("trace.h5"));
    const auto active = active_of_steps(trace);
    const metro::MetricsReader reader(run.output("metrics.h5"));
    std::int64_t step_idx = 0;
    std::size_t num_decode_steps = 0;
    reader.for_each_step([&](const metro::StepMetrics& step) {
      if (step.kind == metro::StepKind::decode) {
        ++num_decode_steps;
        std::vector<std::int32_t> recorded;
        for (const metro::LayerActivation& layer : step.layers) {
          recorded.push_back(layer.active);
        }
        CHECK(active.at(step_idx) == recorded);
      }
      ++step_idx;
    });
    CHECK(active.size() == num_decode_steps);
    std::int64_t num_tokens = 0;  // the last token of a request is not computed any more
    reader.for_each_request([&](const metro::RequestMetrics& request) {
      num_tokens += request.prompt_tokens + request.generated_tokens - 1;
    });
    CHECK(trace.num_tokens() == num_tokens);
  }
  transport->barrier();
}

TEST_CASE("positions in blocks of another request are recorded there alone, with the experts of an unshared run") {
  const auto transport = metro::make_mpi_transport(60.0);

  const RunOnTinyModel run(*transport, "exact", "kv.block_tokens = 4\n");

  if (transport->rank() == 0) {
    const RoutingTrace trace = metro::read_trace(run.output("trace.h5"));
    const auto alone = metro::make_self_transport();
    const RunOnTinyModel reference(*alone, "exact", unshared);
    const RoutingTrace expected = metro::read_trace(reference.output("trace.h5"));
    const auto expected_rows = rows_of(expected);
    for (const auto& [name, row] : rows_of(trace)) {
      CAPTURE(name.first, name.second);
      REQUIRE(expected_rows.count(name) == 1);
      CHECK(same_choices(trace, row, expected, expected_rows.at(name)));
    }
    std::int64_t num_shared = 0;
    const auto totals = metro::MetricsReader(run.output("metrics.h5")).totals();
    for (const metro::PromptTokens& rank : totals->prompt_of_rank) {
      num_shared += rank.num_shared;
    }
    CHECK(num_shared > 0);
    CHECK(trace.num_tokens() == expected.num_tokens() - num_shared);
  }
  transport->barrier();
}
