// Which device each rank takes, from what the ranks see.
#include "mpi_launch/devices.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using metro::choose_devices;
using metro::Device;
using metro::DeviceMap;
using metro::ExitCode;
using metro::test::expect_error;

namespace {

Device gpu(const std::string& id) {
  return {"uuid-" + id, "NVIDIA H200", "0000:" + id + ":00.0", std::int64_t{139} << 30};
}

std::vector<std::string> pci_of(const DeviceMap& map) {
  std::vector<std::string> ids;
  for (const auto& chosen : map) {
    ids.push_back(chosen.device.pci_bus_id);
  }
  return ids;
}

std::vector<std::int64_t> idx_of(const DeviceMap& map) {
  std::vector<std::int64_t> indices;
  for (const auto& chosen : map) {
    indices.push_back(chosen.idx);
  }
  return indices;
}

const std::vector<Device> two{gpu("01"), gpu("02")};

}  // namespace

TEST_CASE("ranks that see all devices of their node take one each, in the order of their places on it") {
  // The second node lists its ranks between those of the first.
  const DeviceMap map = choose_devices({two, two, two, two}, {0, 1, 0, 1}, {"n0", "n1", "n0", "n1"}, false);

  CHECK(idx_of(map) == std::vector<std::int64_t>{0, 0, 1, 1});
  CHECK(pci_of(map) == std::vector<std::string>{"0000:01:00.0", "0000:01:00.0", "0000:02:00.0", "0000:02:00.0"});
  CHECK(!map[0].is_shared);
  CHECK(!map[3].is_shared);
}

TEST_CASE("fewer ranks than devices leave the last ones alone") {
  const DeviceMap map = choose_devices({{gpu("01"), gpu("02"), gpu("03")}, {gpu("01"), gpu("02"), gpu("03")}}, {0, 0},
                                       {"n0", "n0"}, false);

  CHECK(idx_of(map) == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("a rank that its launcher bound to one device takes that one") {
  const DeviceMap map = choose_devices({{gpu("02")}, {gpu("01")}}, {0, 0}, {"n0", "n0"}, false);

  CHECK(idx_of(map) == std::vector<std::int64_t>{0, 0});
  CHECK(pci_of(map) == std::vector<std::string>{"0000:02:00.0", "0000:01:00.0"});
}

TEST_CASE("a rank that sees some devices of its node takes one that is free") {
  const std::vector<Device> others{gpu("03"), gpu("04")};

  const DeviceMap map = choose_devices({two, two, others, others}, {0, 0, 0, 0}, {"n0", "n0", "n0", "n0"}, false);

  CHECK(pci_of(map) == std::vector<std::string>{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"});
}

TEST_CASE("more ranks on a node than devices is an error that names the node and the key") {
  expect_error(
      ExitCode::usage,
      {"3 ranks run on n0, and rank 2 finds none of the 2 GPUs it sees free: start no more ranks on a node than "
       "it has GPUs, or let ranks share with device.share = \"on\""},
      [] {
        choose_devices({two, two, two}, {0, 0, 0}, {"n0", "n0", "n0"}, false);
      });
}

TEST_CASE("two ranks with the same single device is an error that names both and the device") {
  expect_error(ExitCode::usage,
               {"ranks 1 and 2 on n1 have the same GPU, NVIDIA H200 (0000:07:00.0): give each rank one of its own, or "
                "let ranks share with device.share = \"on\""},
               [] {
                 choose_devices({two, {gpu("07")}, {gpu("07")}}, {0, 1, 1}, {"n0", "n1", "n1"}, false);
               });
}

TEST_CASE("equal devices of different nodes are not the same") {
  CHECK_NOTHROW(choose_devices({{gpu("01")}, {gpu("01")}}, {0, 1}, {"n0", "n1"}, false));
}

TEST_CASE("ranks that may share go round the devices, and all who share say so") {
  const DeviceMap map = choose_devices({two, two, two, two}, {0, 0, 0, 1}, {"n0", "n0", "n0", "n1"}, true);

  CHECK(idx_of(map) == std::vector<std::int64_t>{0, 1, 0, 0});
  CHECK(map[0].is_shared);
  CHECK(!map[1].is_shared);
  CHECK(map[2].is_shared);
  CHECK(!map[3].is_shared);
}

TEST_CASE("ranks with the same device of the same node divide its memory") {
  const std::vector<std::int64_t> nodes{0, 0, 0, 1};
  const DeviceMap map = choose_devices({two, two, two, two}, nodes, {"n0", "n0", "n0", "n1"}, true);

  CHECK(metro::ranks_on_same_device(map, nodes) == std::vector<std::int64_t>{2, 1, 2, 1});
  CHECK(metro::ranks_on_same_device({}, nodes).empty());
}

TEST_CASE("permission to share changes nothing while there are devices for all") {
  const DeviceMap map = choose_devices({two, two}, {0, 0}, {"n0", "n0"}, true);

  CHECK(idx_of(map) == std::vector<std::int64_t>{0, 1});
  CHECK(!map[0].is_shared);
}

TEST_CASE("a rank starts on the device of its place in the map, and on 0 where there are none") {
  const DeviceMap map = choose_devices({two, two}, {0, 0}, {"n0", "n0"}, false);

  CHECK(metro::device_of(map, 1) == 1);
  CHECK(metro::device_of({}, 1) == 0);
}

TEST_CASE("the text of a device names index, name, PCI bus and memory") {
  CHECK(metro::text_of({1, gpu("17"), false}) == "1 NVIDIA H200 0000:17:00.0, 139.0 GiB");
  CHECK(metro::text_of({0, gpu("17"), true}) == "0 NVIDIA H200 0000:17:00.0, 139.0 GiB, shared");
}
