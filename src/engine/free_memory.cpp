#include "engine/free_memory.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace metro {

namespace {

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;  // "max" is no number: no limit
}

// What `folder` leaves of its limit; page cache counts as used, so this errs on the low side.
std::int64_t left_in(const std::string& folder, const std::string& limit, const std::string& usage) {
  const auto most = number_in(folder + limit);
  const auto used = number_in(folder + usage);
  return most && used ? std::max<std::int64_t>(0, *most - *used) : std::numeric_limits<std::int64_t>::max();
}

// Lines "hierarchy:controllers:path" of /proc/self/cgroup; v2 has hierarchy 0 and no controllers.
std::int64_t cgroup_left() {
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      left = std::min(left, left_in("/sys/fs/cgroup" + path + "/", "memory.max", "memory.current"));
    } else if (controllers.find("memory") != std::string::npos) {
      const std::string folder = "/sys/fs/cgroup/memory" + path + "/";
      left = std::min(left, left_in(folder, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return left;
}

}  // namespace

std::int64_t free_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("MemAvailable:")) {
      std::istringstream words(line.substr(13));
      std::int64_t kibibytes = 0;
      if (words >> kibibytes) {
        return std::min(kibibytes * 1024, cgroup_left());
      }
    }
  }
  throw Error(ExitCode::machine, "cannot find MemAvailable in /proc/meminfo");
}

}  // namespace metro
