// "Did you mean": the name nearest to a mistyped one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// Least number of inserted, removed or replaced bytes and swapped neighbours that turns `left` into `right`.
std::int64_t edit_distance(std::string_view left, std::string_view right);

// The candidate with the least distance (tie: the earlier one), if that is at most a third of the longer name, at
// least two edits being allowed.
std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace metro
