#include "deck/nearest.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace metro {

std::int64_t edit_distance(std::string_view left, std::string_view right) {
  // Row i of the table holds the distances of the first i bytes of `left` to every beginning of `right`.
  std::vector<std::int64_t> before_previous(right.size() + 1);
  std::vector<std::int64_t> previous(right.size() + 1);
  std::vector<std::int64_t> current(right.size() + 1);
  std::iota(current.begin(), current.end(), 0);
  for (std::size_t i = 1; i <= left.size(); ++i) {
    std::swap(before_previous, previous);
    std::swap(previous, current);
    current[0] = static_cast<std::int64_t>(i);
    for (std::size_t j = 1; j <= right.size(); ++j) {
      const std::int64_t replaced = previous[j - 1] + (left[i - 1] == right[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1]) {
        current[j] = std::min(current[j], before_previous[j - 2] + 1);
      }
    }
  }
  return current[right.size()];
}

std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  std::int64_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const auto longer = static_cast<std::int64_t>(std::max(name.size(), candidate.size()));
    const std::int64_t most = std::max<std::int64_t>(2, longer / 3);
    // No fewer edits than the lengths differ: so a name of a megabyte is not compared byte by byte.
    if (std::abs(std::ssize(name) - std::ssize(candidate)) > most) {
      continue;
    }
    const std::int64_t distance = edit_distance(name, candidate);
    if (distance <= most && (!best || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace metro
