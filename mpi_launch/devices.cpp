#include "mpi_launch/devices.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "mpi_launch/visible_devices.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

namespace metro {

namespace {

// A line each; names hold no tabs.
std::string packed(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) {
    text += fmt::format("{}\t{}\t{}\t{}\n", device.id, device.name, device.pci_bus_id, device.memory);
  }
  return text;
}

std::vector<Device> unpacked(const std::string& text) {
  std::vector<Device> devices;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    Device device;
    std::string memory;
    std::getline(fields, device.id, '\t');
    std::getline(fields, device.name, '\t');
    std::getline(fields, device.pci_bus_id, '\t');
    std::getline(fields, memory);
    device.memory = std::stoll(memory);
    devices.push_back(device);
  }
  return devices;
}

std::string name_of(const Device& device) {
  return fmt::format("{} ({})", device.name, device.pci_bus_id);
}

// Of the ranks before `rank` on its node, the lowest whose device this is.
std::optional<std::int64_t> user_of(const Device& device, const DeviceMap& map,
                                    const std::vector<std::int64_t>& rank_to_node, std::int64_t rank) {
  for (std::int64_t other = 0; other < rank; ++other) {
    if (rank_to_node[at(other)] == rank_to_node[at(rank)] && map[at(other)].device.id == device.id) {
      return other;
    }
  }
  return std::nullopt;
}

// Rank `rank` finds none of its devices free: it sees one, and another rank uses it, or there are more ranks than
// devices.
std::string none_free(const std::vector<Device>& visible, std::int64_t user, std::int64_t rank, const std::string& host,
                      std::int64_t num_ranks_on_node) {
  const std::string remedy = "or let ranks share with device.share = \"on\"";
  if (visible.size() == 1) {
    return fmt::format("ranks {} and {} on {} have the same GPU, {}: give each rank one of its own, {}", user, rank,
                       host, name_of(visible[0]), remedy);
  }
  return fmt::format(
      "{} ranks run on {}, and rank {} finds none of the {} GPUs it sees free: start no more ranks on a "
      "node than it has GPUs, {}",
      num_ranks_on_node, host, rank, visible.size(), remedy);
}

}  // namespace

DeviceMap choose_devices(const std::vector<std::vector<Device>>& rank_to_visible,
                         const std::vector<std::int64_t>& rank_to_node, const std::vector<std::string>& rank_to_host,
                         bool may_share) {
  DeviceMap map;
  for (std::int64_t rank = 0; rank < std::ssize(rank_to_visible); ++rank) {
    const std::vector<Device>& visible = rank_to_visible[at(rank)];
    METRO_REQUIRE(!visible.empty(), std::to_string(rank));
    const auto before = rank_to_node.begin() + rank;
    const std::int64_t place = std::count(rank_to_node.begin(), before, rank_to_node[at(rank)]);
    const auto num_visible = std::ssize(visible);
    const auto first_user = [&](std::int64_t i) { return user_of(visible[at(i)], map, rank_to_node, rank); };

    std::int64_t idx = place % num_visible;
    for (std::int64_t tried = 1; tried < num_visible && first_user(idx); ++tried) {
      idx = (place + tried) % num_visible;
    }
    if (first_user(idx)) {
      idx = place % num_visible;
      if (!may_share) {
        const auto num_ranks = std::count(rank_to_node.begin(), rank_to_node.end(), rank_to_node[at(rank)]);
        throw Error(ExitCode::usage, none_free(visible, *first_user(idx), rank, rank_to_host[at(rank)], num_ranks));
      }
    }
    map.push_back({idx, visible[at(idx)]});
  }
  const std::vector<std::int64_t> num_ranks_on_device = ranks_on_same_device(map, rank_to_node);
  for (std::size_t rank = 0; rank < map.size(); ++rank) {
    map[rank].is_shared = num_ranks_on_device[rank] > 1;
  }
  return map;
}

DeviceMap map_devices(Transport& transport, const std::vector<std::int64_t>& rank_to_node,
                      const std::vector<std::string>& rank_to_host, bool may_share) {
  if (!has_devices()) {
    return {};
  }
  std::string own;
  agree(transport, [&] { own = packed(visible_devices()); });
  std::vector<std::vector<Device>> rank_to_visible;
  for (const std::string& text : gather_texts(transport, own)) {
    rank_to_visible.push_back(unpacked(text));
  }
  DeviceMap map;
  agree(transport, [&] { map = choose_devices(rank_to_visible, rank_to_node, rank_to_host, may_share); });
  return map;
}

std::vector<std::int64_t> ranks_on_same_device(const DeviceMap& devices,
                                               const std::vector<std::int64_t>& rank_to_node) {
  std::vector<std::int64_t> counts(devices.size(), 0);
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    for (std::size_t other = 0; other < devices.size(); ++other) {
      const bool is_same = rank_to_node[rank] == rank_to_node[other] && devices[rank].device == devices[other].device;
      counts[rank] += is_same ? 1 : 0;
    }
  }
  return counts;
}

std::int64_t device_of(const DeviceMap& map, std::int64_t rank) {
  return map.empty() ? 0 : map.at(at(rank)).idx;
}

std::string text_of(const ChosenDevice& chosen) {
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  return fmt::format("{} {} {}, {:.1f} GiB{}", chosen.idx, chosen.device.name, chosen.device.pci_bus_id,
                     static_cast<double>(chosen.device.memory) / gib, chosen.is_shared ? ", shared" : "");
}

}  // namespace metro
