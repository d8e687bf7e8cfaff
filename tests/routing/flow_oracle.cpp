#include "routing/flow_oracle.hpp"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>

namespace metro::test {

namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using Graph = boost::adjacency_list<
    boost::vecS, boost::vecS, boost::directedS, boost::no_property,
    boost::property<boost::edge_capacity_t, std::int64_t,
                    boost::property<boost::edge_residual_capacity_t, std::int64_t,
                                    boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>>;

void add_edge(Graph& graph, std::size_t from, std::size_t to, std::int64_t capacity) {
  const auto forth = boost::add_edge(from, to, graph).first;
  const auto back = boost::add_edge(to, from, graph).first;
  boost::put(boost::edge_capacity, graph, forth, capacity);
  boost::put(boost::edge_capacity, graph, back, 0);
  boost::put(boost::edge_reverse, graph, forth, back);
  boost::put(boost::edge_reverse, graph, back, forth);
}

}  // namespace

bool is_feasible_by_flow(const Instance& instance, std::int32_t lambda) {
  const auto active = instance.active_experts();
  const auto num_ranks = static_cast<std::size_t>(instance.num_ranks);
  const std::size_t source = num_ranks + active.size();
  const std::size_t sink = source + 1;
  Graph graph(sink + 1);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    add_edge(graph, rank, sink, lambda);
  }
  for (std::size_t idx = 0; idx < active.size(); ++idx) {
    add_edge(graph, source, num_ranks + idx, 1);
    for (const std::int32_t rank : instance.hosts_of(active[idx])) {
      add_edge(graph, num_ranks + idx, static_cast<std::size_t>(rank), 1);
    }
  }
  return boost::push_relabel_max_flow(graph, source, sink) == static_cast<std::int64_t>(active.size());
}

}  // namespace metro::test
