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

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;  // "max" is no number: no limit
}

// Lines "name value"; 0 if there is none.
std::int64_t statistic_in(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == wanted) {
      return value;
    }
  }
  return 0;
}

struct Controller {
  std::string mount;  // folder of the hierarchy
  const char* limit;  // files of a group
  const char* usage;
  const char* droppable;  // statistic of cached file pages not in use
};

// The least that the group `path` or one above it leaves: limits are hierarchical, and a job's limit is often set
// above the group of its processes.
std::int64_t left_in(const Controller& controller, std::string path) {
  std::int64_t left = unlimited;
  while (true) {
    const std::string folder = controller.mount + path + "/";
    const auto most = number_in(folder + controller.limit);
    const auto used = number_in(folder + controller.usage);
    if (most && used) {
      const std::int64_t droppable = statistic_in(folder + "memory.stat", controller.droppable);
      left = std::min(left, std::max<std::int64_t>(0, *most - *used + std::min(droppable, *used)));
    }
    if (path.empty()) {
      return left;
    }
    path.resize(path.rfind('/'));
  }
}

// Lines "hierarchy:controllers:path" of /proc/self/cgroup; v2 has hierarchy 0 and no controllers.
std::int64_t cgroup_left(const std::string& root) {
  std::int64_t left = unlimited;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1) == "/" ? "" : line.substr(second + 1);
    if (!path.empty() && path.front() != '/') {
      continue;
    }
    if (controllers.empty()) {
      left = std::min(left, left_in({root + "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}, path));
    } else if (controllers.find("memory") != std::string::npos) {
      left = std::min(left, left_in({root + "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                     "total_inactive_file"},
                                    path));
    }
  }
  return left;
}

}  // namespace

std::int64_t free_memory_bytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("MemAvailable:")) {
      std::istringstream words(line.substr(13));
      std::int64_t kibibytes = 0;
      if (words >> kibibytes) {
        return std::min(kibibytes * 1024, cgroup_left(root));
      }
    }
  }
  throw Error(ExitCode::machine, "cannot find MemAvailable in " + root + "/proc/meminfo");
}

}  // namespace metro
