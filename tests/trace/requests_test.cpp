#include "trace/requests_of_trace.hpp"

#include "trace/small_trace.hpp"

#include <catch2/catch.hpp>

using metro::RoutingTrace;
using metro::TracePhase;
using metro::TraceRequests;
using metro::TraceRows;
using metro::test::small_trace;

namespace {

using Rows = std::vector<std::int64_t>;

std::vector<std::pair<std::uint32_t, Rows>> requests(const RoutingTrace& trace, TraceRows rows, TraceRequests half) {
  std::vector<std::pair<std::uint32_t, Rows>> found;
  for (const metro::RequestRows& request : metro::requests_of(trace, rows, half)) {
    found.emplace_back(request.request, request.rows);
  }
  return found;
}

}  // namespace

TEST_CASE("rows are told apart by phase, requests by their place in the trace") {
  const RoutingTrace trace = small_trace();

  using Requests = std::vector<std::pair<std::uint32_t, Rows>>;
  CHECK(requests(trace, TraceRows::all, TraceRequests::all) ==
        Requests{{7, {0, 1, 2, 3}}, {8, {4, 5, 6}}, {20, {7, 8}}});
  CHECK(requests(trace, TraceRows::decode, TraceRequests::even) == Requests{{7, {1, 2, 3}}, {20, {8}}});
  CHECK(requests(trace, TraceRows::decode, TraceRequests::odd) == Requests{{8, {5, 6}}});
  CHECK(requests(trace, TraceRows::prefill, TraceRequests::all) == Requests{{7, {0}}, {8, {4}}, {20, {7}}});
}

TEST_CASE("rows of a request come in the order of their positions, wherever they lie in the trace") {
  RoutingTrace trace = small_trace();
  trace.request = {8, 7, 8, 7, 8, 7, 8, 7, 8};
  trace.position = {9, 0, 3, 1, 2, 2, 0, 3, 1};

  CHECK(requests(trace, TraceRows::all, TraceRequests::even).front().second == Rows{1, 3, 5, 7});
  CHECK(requests(trace, TraceRows::all, TraceRequests::odd).front().second == Rows{6, 8, 4, 2, 0});
}

TEST_CASE("a request without rows of the wanted phase keeps its place but is left out") {
  RoutingTrace trace = small_trace();
  trace.phase.assign(9, TracePhase::decode);
  trace.phase[4] = trace.phase[5] = trace.phase[6] = TracePhase::prefill;  // request 8

  CHECK(requests(trace, TraceRows::decode, TraceRequests::odd).empty());
  CHECK(requests(trace, TraceRows::decode, TraceRequests::even).size() == 2);
}

TEST_CASE("decode rows are used where a trace has any") {
  RoutingTrace trace = small_trace();
  CHECK(metro::usual_rows(trace) == TraceRows::decode);

  trace.phase.assign(9, TracePhase::prefill);
  CHECK(metro::usual_rows(trace) == TraceRows::all);
}

TEST_CASE("loads count the choices of the wanted rows per layer and expert") {
  const RoutingTrace trace = small_trace();

  const auto loads = metro::loads_of(trace, metro::requests_of(trace, TraceRows::decode, TraceRequests::odd));

  // Rows 5 and 6: layer 0 chooses 5, 0 and 0, 1; layer 1 chooses 2, 4 and 3, 5.
  CHECK(loads == std::vector<std::int64_t>{2, 1, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1});
}

TEST_CASE("names of rows and requests are those of the command line") {
  CHECK(metro::trace_rows_named("prefill") == TraceRows::prefill);
  CHECK(metro::trace_requests_named("odd") == TraceRequests::odd);
  CHECK_FALSE(metro::trace_rows_named("odd").has_value());
  CHECK_FALSE(metro::trace_requests_named("decode").has_value());
  CHECK(metro::name_of(TraceRows::decode) == "decode");
  CHECK(metro::name_of(TraceRequests::all) == "all");
}
