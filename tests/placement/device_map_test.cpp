#include "placement/device_map.hpp"

#include "base/file.hpp"
#include "base/integers.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

using metro::at;
using metro::ExitCode;
using metro::Placement;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

std::string npy(const std::string& header, const std::string& elements) {
  std::string bytes = "\x93NUMPY";
  bytes += {'\1', '\0', static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256)};
  return bytes + header + elements;
}

std::string header_of(const char* descr, const char* order, const char* shape) {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}\n", descr, order, shape);
}

Placement placement_of(const std::string& bytes) {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("m.npy"), bytes);
  return metro::read_device_map(folder.file("m.npy"));
}

// 2 devices, 1 layer, 3 experts: {0, 2} and {1}.
const std::string bits("\1\0\1\0\1\0", 6);

}  // namespace

TEST_CASE("devices with fewer experts get empty slots at the end") {
  const Placement placement = placement_of(npy(header_of("|u1", "False", "(2, 1, 3)"), bits));

  CHECK(placement.num_layers == 1);
  CHECK(placement.num_experts == 3);
  CHECK(placement.num_ranks == 2);
  CHECK(placement.slots_per_rank == 2);
  CHECK(placement.slot_to_expert == std::vector<std::int32_t>{0, 2, 1, -1});
}

TEST_CASE("the array of a device map is devices by layers by experts of any integer type") {
  std::string elements;
  for (const int value : {1, 1, 0, 0, 1, 0, 0, 1}) {  // device 0: layer 0 {0, 1}, layer 1 {}; device 1: {0}, {1} ...
    elements += static_cast<char>(value);
    elements += std::string(7, '\0');
  }

  expect_error(ExitCode::usage, {"expert 0 has no slot in MoE layer 1"},
               [&] { placement_of(npy(header_of("<i8", "False", "(2, 2, 2)"), elements)); });
  elements[16] = 1;

  const Placement placement = placement_of(npy(header_of("<i8", "False", "(2, 2, 2)"), elements));

  CHECK(placement.slot_to_expert == std::vector<std::int32_t>{0, 1, 0, -1, 0, -1, 1, -1});
}

TEST_CASE("a production placement of DeepSeek-V3 is read as published") {
  const Placement placement =
      metro::read_device_map(std::string(METRO_TEST_DATA) + "/placement/dsv3_32_devices_3_layers.npy");

  CHECK(placement.num_layers == 3);
  CHECK(placement.num_experts == 256);
  CHECK(placement.num_ranks == 32);
  CHECK(placement.slots_per_rank == 9);
  const auto is_filled = [](std::int32_t expert) { return expert != Placement::empty_slot; };
  for (const std::int64_t layer : {0, 1}) {
    CHECK(std::count_if(placement.layer(layer).begin(), placement.layer(layer).end(), is_filled) == 288);
  }
  CHECK(std::count_if(placement.layer(2).begin(), placement.layer(2).end(), is_filled) == 280);
  CHECK(placement.layer(2)[at(24 * 9 + 8)] == Placement::empty_slot);
  CHECK(placement.layer(2)[at(23 * 9 + 8)] != Placement::empty_slot);
}

TEST_CASE("what is wrong with a device map is named") {
  const ScratchFolder folder;

  expect_error(ExitCode::usage, {"none.npy", "No such file"}, [&] { metro::read_device_map(folder.file("none.npy")); });
  expect_error(ExitCode::usage, {"m.npy", "not a NumPy"}, [] { placement_of("{\"num_experts\": 3, 1, 2}"); });
  expect_error(ExitCode::usage, {"truncated"},
               [] { placement_of(npy(header_of("|u1", "False", "(2, 1, 3)"), bits).substr(0, 40)); });
  expect_error(ExitCode::usage, {"'<f4'", "integers or bool"},
               [] { placement_of(npy(header_of("<f4", "False", "(2, 1, 3)"), bits)); });
  expect_error(ExitCode::usage, {"Fortran"}, [] { placement_of(npy(header_of("|u1", "True", "(2, 1, 3)"), bits)); });
  expect_error(ExitCode::usage, {"(6,)", "[devices, layers, experts]"},
               [] { placement_of(npy(header_of("|u1", "False", "(6,)"), bits)); });
  expect_error(ExitCode::usage, {"(-2, 1, -3)", "[devices, layers, experts]"},
               [] { placement_of(npy(header_of("|u1", "False", "(-2, 1, -3)"), bits)); });
  expect_error(ExitCode::usage, {"(1, 2, 1, 3)"},
               [] { placement_of(npy(header_of("|u1", "False", "(1, 2, 1, 3)"), bits)); });
  expect_error(ExitCode::usage, {"6 bytes", "2 x 1 x 4", "of 1 bytes"},
               [] { placement_of(npy(header_of("|u1", "False", "(2, 1, 4)"), bits)); });
  expect_error(ExitCode::usage, {"[1][0][2]", "0 or 1"},
               [] { placement_of(npy(header_of("|u1", "False", "(2, 1, 3)"), std::string("\1\0\1\0\1\2", 6))); });
}
