// The requests of a trace, each with its token rows in the order of their positions, and what can be counted over them.
#pragma once

#include "trace/routing_trace.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace metro {

// Which token rows of a request count.
enum class TraceRows { decode, prefill, all };
// Which requests count, by their place among all requests of the trace in ascending order: the first is even.
enum class TraceRequests { even, odd, all };

std::optional<TraceRows> trace_rows_named(std::string_view name);
std::optional<TraceRequests> trace_requests_named(std::string_view name);
std::string_view name_of(TraceRows rows);
std::string_view name_of(TraceRequests requests);

// TraceRows::decode if the trace has any decode rows, else TraceRows::all.
TraceRows usual_rows(const RoutingTrace& trace);

struct RequestRows {
  std::uint32_t request = 0;
  std::vector<std::int64_t> rows;  // token rows of the trace, positions ascending
};

// Requests in ascending order. Those without any such row are left out.
std::vector<RequestRows> requests_of(const RoutingTrace& trace, TraceRows rows, TraceRequests requests);

// Tokens per expert over all rows of these requests. [layers, num_experts], for placement.
std::vector<std::int64_t> loads_of(const RoutingTrace& trace, std::span<const RequestRows> requests);

}  // namespace metro
