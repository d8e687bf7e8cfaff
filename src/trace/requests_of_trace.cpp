#include "trace/requests_of_trace.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace metro {

namespace {

constexpr std::array<std::pair<std::string_view, TraceRows>, 3> row_names{
    {{"decode", TraceRows::decode}, {"prefill", TraceRows::prefill}, {"all", TraceRows::all}}};
constexpr std::array<std::pair<std::string_view, TraceRequests>, 3> request_names{
    {{"even", TraceRequests::even}, {"odd", TraceRequests::odd}, {"all", TraceRequests::all}}};

template <class T, std::size_t n>
std::optional<T> value_named(const std::array<std::pair<std::string_view, T>, n>& names, std::string_view name) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.first == name; });
  return found == names.end() ? std::nullopt : std::optional<T>(found->second);
}

template <class T, std::size_t n>
std::string_view name_among(const std::array<std::pair<std::string_view, T>, n>& names, T value) {
  return std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.second == value; })->first;
}

bool is_wanted(TracePhase phase, TraceRows rows) {
  return rows == TraceRows::all || (phase == TracePhase::decode) == (rows == TraceRows::decode);
}

}  // namespace

std::optional<TraceRows> trace_rows_named(std::string_view name) {
  return value_named(row_names, name);
}
std::optional<TraceRequests> trace_requests_named(std::string_view name) {
  return value_named(request_names, name);
}
std::string_view name_of(TraceRows rows) {
  return name_among(row_names, rows);
}
std::string_view name_of(TraceRequests requests) {
  return name_among(request_names, requests);
}

TraceRows usual_rows(const RoutingTrace& trace) {
  const bool has_decode = std::find(trace.phase.begin(), trace.phase.end(), TracePhase::decode) != trace.phase.end();
  return has_decode ? TraceRows::decode : TraceRows::all;
}

std::vector<RequestRows> requests_of(const RoutingTrace& trace, TraceRows rows, TraceRequests requests) {
  std::vector<std::int64_t> order(at(trace.num_tokens()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto place = [&](std::int64_t row) { return std::pair(trace.request[at(row)], trace.position[at(row)]); };
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return place(a) < place(b); });

  std::vector<RequestRows> all;
  for (const std::int64_t row : order) {
    if (all.empty() || all.back().request != trace.request[at(row)]) {
      all.push_back({trace.request[at(row)], {}});
    }
    if (is_wanted(trace.phase[at(row)], rows)) {
      all.back().rows.push_back(row);
    }
  }
  std::vector<RequestRows> chosen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool in_half = requests == TraceRequests::all || (i % 2 == 0) == (requests == TraceRequests::even);
    if (in_half && !all[i].rows.empty()) {
      chosen.push_back(std::move(all[i]));
    }
  }
  return chosen;
}

std::vector<std::int64_t> loads_of(const RoutingTrace& trace, std::span<const RequestRows> requests) {
  const std::int64_t num_experts = trace.model.num_experts;
  std::vector<std::int64_t> loads(at(trace.model.num_layers() * num_experts), 0);
  for (const RequestRows& request : requests) {
    for (const std::int64_t row : request.rows) {
      for (std::int64_t layer = 0; layer < trace.model.num_layers(); ++layer) {
        for (const std::uint16_t expert : trace.experts(row, layer)) {
          ++loads[at(layer * num_experts + expert)];
        }
      }
    }
  }
  return loads;
}

}  // namespace metro
