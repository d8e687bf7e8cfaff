#include "report/core_use.hpp"

#include <charconv>
#include <map>
#include <set>
#include <utility>

namespace metro {

namespace {

constexpr std::int64_t most_cpus = 1 << 20;

// A number at the beginning of `text`, which is cut off; -1: there is none.
std::int64_t take_number(std::string_view& text) {
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > most_cpus) {
    return -1;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// Cuts `mark` off the beginning, if it is there.
bool take(std::string_view& text, char mark) {
  const bool there = text.starts_with(mark);
  text.remove_prefix(there ? 1 : 0);
  return there;
}

struct Group {
  std::int64_t num_ranks = 0;
  std::set<std::int64_t> cores;
};

}  // namespace

std::vector<std::int64_t> numbers_of_list(std::string_view list) {
  std::set<std::int64_t> numbers;
  do {
    const std::int64_t first = take_number(list);
    const std::int64_t last = take(list, '-') ? take_number(list) : first;
    if (first < 0 || last < first) {
      return {};
    }
    for (std::int64_t number = first; number <= last; ++number) {
      numbers.insert(number);
    }
  } while (take(list, ','));
  return list.empty() ? std::vector<std::int64_t>(numbers.begin(), numbers.end()) : std::vector<std::int64_t>();
}

std::optional<CoreUse> core_use(const RunIdentity& identity) {
  // By node, and by node and cores; the empty text stands for the node.
  std::map<std::pair<std::int64_t, std::string>, Group> groups;
  std::map<std::int64_t, std::string> node_to_host;
  for (std::size_t rank = 0; rank < identity.rank_to_binding.size(); ++rank) {
    const std::string& list = identity.rank_to_binding[rank].cores;
    const std::vector<std::int64_t> cores = numbers_of_list(list);
    if (cores.empty()) {
      return std::nullopt;
    }
    const std::int64_t node = identity.rank_to_node.at(rank);
    node_to_host.emplace(node, identity.rank_to_host.at(rank));
    for (const std::string& bound_to : {std::string(), list}) {
      Group& group = groups[{node, bound_to}];
      ++group.num_ranks;
      group.cores.insert(cores.begin(), cores.end());
    }
  }
  std::optional<CoreUse> worst;
  for (const auto& [key, group] : groups) {
    const CoreUse use{group.num_ranks * identity.threads_per_rank, std::ssize(group.cores), node_to_host.at(key.first)};
    if (!worst || use.num_threads * worst->num_cores > worst->num_threads * use.num_cores) {
      worst = use;
    }
  }
  return worst;
}

}  // namespace metro
