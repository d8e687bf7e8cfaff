#include "transport/roll_call.hpp"

#include "base/error.hpp"
#include "transport/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace metro {

namespace {

constexpr std::size_t most_named = 6;  // ranges of ranks, hosts or places, before the rest is only counted

// "a", "a and b", "a, b and c".
std::string enumeration(const std::vector<std::string>& items, std::string_view last_joint = " and ") {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? std::string_view() : i + 1 == items.size() ? last_joint : std::string_view(", ");
    text += items[i];
  }
  return text;
}

std::string hosts_text(std::span<const std::int64_t> ranks, const Peers& peers) {
  std::vector<std::string> hosts;
  for (const std::int64_t rank : ranks) {
    if (std::string host = peers.host(rank); std::ranges::find(hosts, host) == hosts.end()) {
      hosts.push_back(std::move(host));
    }
  }
  if (hosts.size() > most_named) {
    const std::size_t num_left = hosts.size() - most_named;
    hosts.resize(most_named);
    hosts.push_back(fmt::format("{} more", num_left));
  }
  return fmt::format(" ({})", enumeration(hosts));
}

std::string seconds_text(double seconds) {
  return seconds < 10.0 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

// Ranks that are at the same place.
struct Group {
  std::vector<std::int64_t> ranks;
  Report longest;  // of the one that has waited longest
};

std::vector<Group> groups_of(std::vector<Report> reports) {
  std::ranges::sort(reports, {}, &Report::rank);
  std::vector<Group> groups;
  for (const Report& report : reports) {
    auto group = std::ranges::find_if(groups, [&](const Group& g) { return g.longest.is_at_same_place(report); });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), Group{{}, report});
    }
    group->ranks.push_back(report.rank);
    group->longest.waited_s = std::max(group->longest.waited_s, report.waited_s);
  }
  return groups;
}

// "ranks 0 and 1 have waited 60 s in barrier during loading, rank 2 has waited ..."
std::string groups_text(const std::vector<Group>& groups, std::string_view for_whom, bool with_numbers) {
  std::vector<std::string> texts;
  for (const Group& group : groups) {
    texts.push_back(fmt::format(
        "{} {} waited {}{} in {}{} during {}", ranks_text(group.ranks), group.ranks.size() == 1 ? "has" : "have",
        seconds_text(group.longest.waited_s), for_whom, group.longest.operation.data(),
        with_numbers ? fmt::format(" {}", group.longest.num_operations) : "", group.longest.phase.data()));
  }
  if (texts.size() > most_named) {
    const std::size_t num_left = texts.size() - most_named;
    texts.resize(most_named);
    texts.push_back(fmt::format("others at {} more places", num_left));
  }
  return enumeration(texts);
}

// What is known of the processes that do not answer.
std::string cause(std::span<const std::int64_t> silent, const Peers& peers) {
  const ProcessState state = peers.state(silent[0]);
  const bool one = silent.size() == 1;
  if (!std::ranges::all_of(silent, [&](std::int64_t rank) { return peers.state(rank) == state; })) {
    return "stopped, or a step takes longer than run.timeout_s";
  }
  switch (state) {
    case ProcessState::gone:
      return one ? "its process is gone" : "their processes are gone";
    case ProcessState::stopped:
      return one ? "its process is stopped" : "their processes are stopped";
    case ProcessState::running:
      return one ? "its process is there: it hangs, or a step takes longer than run.timeout_s"
                 : "their processes are there: they hang, or a step takes longer than run.timeout_s";
    case ProcessState::unknown:
      break;
  }
  return "stopped, or a step takes longer than run.timeout_s";
}

// Ranks that wait for nobody but their own device; ascending.
std::vector<std::int64_t> ranks_with_busy_devices(std::span<const Report> reports) {
  std::vector<std::int64_t> ranks;
  for (const Report& report : reports) {
    if (std::string_view(report.operation.data()) == work_of_device) {
      ranks.push_back(report.rank);
    }
  }
  std::ranges::sort(ranks);
  return ranks;
}

std::string text_when_all_answer(const std::vector<Group>& groups, std::span<const Report> reports,
                                 const Peers& peers) {
  if (const std::vector<std::int64_t> busy = ranks_with_busy_devices(reports); !busy.empty()) {
    return fmt::format("{}{} {}: {}; {}, or a step takes longer than run.timeout_s", ranks_text(busy),
                       hosts_text(busy, peers), busy.size() == 1 ? "waits for its device" : "wait for their devices",
                       groups_text(groups, "", false), busy.size() == 1 ? "it hangs" : "they hang");
  }
  if (groups.size() > 1) {
    return fmt::format(
        "all ranks answer, but from different operations: {}; a rank came too late (run.timeout_s), or this is a bug",
        groups_text(groups, "", true));
  }
  const Report& longest = groups[0].longest;
  std::vector<std::int64_t> late;
  for (const Report& report : reports) {
    if (report.waited_s < 0.5 * longest.waited_s) {
      late.push_back(report.rank);
    }
  }
  std::ranges::sort(late);
  if (late.empty()) {
    return fmt::format("all ranks answer: {}; messages between them were lost", groups_text(groups, "", false));
  }
  return fmt::format(
      "{}{} came too late: others had waited {} in {} during {}; a step takes longer than "
      "run.timeout_s",
      ranks_text(late), hosts_text(late, peers), seconds_text(longest.waited_s), longest.operation.data(),
      longest.phase.data());
}

}  // namespace

Report make_report(std::int64_t rank, std::int64_t num_operations, double waited_s, const char* operation,
                   const char* phase) {
  Report report{rank, num_operations, waited_s, false, {}, {}};
  std::string_view(operation).copy(report.operation.data(), report.operation.size() - 1);
  std::string_view(phase).copy(report.phase.data(), report.phase.size() - 1);
  return report;
}

std::string ranks_text(std::span<const std::int64_t> ranks) {
  METRO_REQUIRE(!ranks.empty() && std::ranges::is_sorted(ranks), std::to_string(ranks.size()) + " ranks");
  std::vector<std::string> runs;
  std::size_t first = 0;
  for (; first < ranks.size() && runs.size() < most_named;) {
    std::size_t end = first + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    end = end - first == 2 ? first + 1 : end;  // "0, 1" rather than "0-1"
    runs.push_back(end - first == 1 ? fmt::format("{}", ranks[first])
                                    : fmt::format("{}-{}", ranks[first], ranks[end - 1]));
    first = end;
  }
  if (first < ranks.size()) {
    runs.push_back(fmt::format("{} more", ranks.size() - first));
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", enumeration(runs));
}

std::string roll_call_text(std::span<const Report> reports, std::span<const std::int64_t> asked, const Peers& peers,
                           const std::string& why) {
  METRO_REQUIRE(!reports.empty(), "nobody has answered");
  std::vector<std::int64_t> silent;
  std::ranges::copy_if(asked, std::back_inserter(silent), [&](std::int64_t rank) {
    return std::ranges::find(reports, rank, &Report::rank) == reports.end();
  });
  const std::vector<Group> groups = groups_of({reports.begin(), reports.end()});
  const std::string after = why.empty() ? "" : fmt::format("; {}", why);
  if (silent.empty()) {
    return text_when_all_answer(groups, reports, peers) + after;
  }
  return fmt::format(
      "{}{} {} not answer: {}; {}{}", ranks_text(silent), hosts_text(silent, peers), silent.size() == 1 ? "does" : "do",
      groups_text(groups, silent.size() == 1 ? " for it" : " for them", false), cause(silent, peers), after);
}

}  // namespace metro
