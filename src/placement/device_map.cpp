#include "placement/device_map.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

namespace metro {

namespace {

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw Error(ExitCode::usage, fmt::format("{}: {}", path, reason));
}

// The array behind the header: its elements are `element_bytes` wide, num_devices * num_layers * num_experts of them.
struct DeviceMapFile {
  std::int64_t element_bytes = 0;
  std::array<std::int64_t, 3> shape{};
  std::string_view elements;
};

// What stands behind 'key': in the header, a Python dictionary on one line. Empty if the key is missing.
std::string_view value_behind(std::string_view header, std::string_view key) {
  const std::size_t found = header.find(key);
  if (found == std::string_view::npos) {
    return {};
  }
  const std::string_view rest = header.substr(found + key.size());
  return rest.substr(std::min(rest.find_first_not_of(": "), rest.size()));
}

std::int64_t element_bytes_of(std::string_view header, const std::string& path) {
  const std::string_view quoted = value_behind(header, "'descr'");
  const std::string_view descr = quoted.size() >= 5 && quoted[0] == '\'' ? quoted.substr(1, 3) : std::string_view();
  for (const std::string_view known : {"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8"}) {
    if (descr == known && quoted[4] == '\'') {
      return descr[2] - '0';
    }
  }
  fail(path, fmt::format("elements of type {}: must be integers or bool, little endian",
                         quoted.substr(0, std::min(quoted.find(','), quoted.size()))));
}

std::array<std::int64_t, 3> shape_of(std::string_view header, const std::string& path) {
  const std::string_view value = value_behind(header, "'shape'");
  const std::string_view tuple = value.substr(0, std::min(value.find(')'), value.size() - 1) + 1);
  std::array<std::int64_t, 3> shape{};
  std::size_t num_dimensions = 0;
  constexpr const char* digits = "0123456789";
  for (std::size_t begin = tuple.find_first_of(digits); begin != std::string_view::npos;) {
    std::int64_t extent = 0;
    const auto parsed = std::from_chars(tuple.data() + begin, tuple.data() + tuple.size(), extent);
    if (num_dimensions == 3 || parsed.ec != std::errc() || extent < 1 ||
        extent > std::numeric_limits<std::int32_t>::max()) {
      num_dimensions = 0;
      break;
    }
    shape[num_dimensions++] = extent;
    begin = tuple.find_first_of(digits, static_cast<std::size_t>(parsed.ptr - tuple.data()));
  }
  if (num_dimensions != 3 || tuple.find('-') != std::string_view::npos) {
    fail(path, fmt::format("an array of shape {}: must be [devices, layers, experts]", tuple));
  }
  return shape;
}

DeviceMapFile parse(std::string_view bytes, const std::string& path) {
  constexpr std::string_view magic = "\x93NUMPY";
  constexpr std::size_t start_bytes = 8;  // magic and version
  if (!bytes.starts_with(magic) || bytes.size() < start_bytes + 4) {
    fail(path, "is not a NumPy .npy file");
  }
  // Version 1 has a header length of 2 bytes, later ones of 4.
  const std::size_t length_bytes = bytes[magic.size()] == 1 ? 2 : 4;
  std::size_t header_bytes = 0;
  for (std::size_t i = length_bytes; i-- > 0;) {
    header_bytes = header_bytes << 8U | static_cast<unsigned char>(bytes[start_bytes + i]);
  }
  const std::size_t header_begin = start_bytes + length_bytes;
  if (header_bytes > bytes.size() - header_begin) {
    fail(path, "is truncated in its header");
  }
  const std::string_view header = bytes.substr(header_begin, header_bytes);
  if (!value_behind(header, "'fortran_order'").starts_with("False")) {
    fail(path, "must be in C order, not in Fortran order");
  }
  DeviceMapFile file{element_bytes_of(header, path), shape_of(header, path), bytes.substr(header_begin + header_bytes)};
  // Checked by division: the product of three extents may overflow.
  const std::int64_t per_device = file.shape[1] * file.shape[2];
  const std::int64_t num_elements = std::ssize(file.elements) / file.element_bytes;
  if (num_elements % per_device != 0 || num_elements / per_device != file.shape[0] ||
      std::ssize(file.elements) % file.element_bytes != 0) {
    fail(path, fmt::format("holds {} bytes for an array of {} x {} x {} elements of {} bytes", file.elements.size(),
                           file.shape[0], file.shape[1], file.shape[2], file.element_bytes));
  }
  return file;
}

bool is_held(const DeviceMapFile& file, std::int64_t element, const std::string& path) {
  const std::string_view bytes = file.elements.substr(at(element * file.element_bytes), at(file.element_bytes));
  const bool rest_is_zero = bytes.find_first_not_of('\0', 1) == std::string_view::npos;
  if (!rest_is_zero || (bytes[0] != 0 && bytes[0] != 1)) {
    const std::int64_t num_experts = file.shape[2];
    const std::int64_t row = element / num_experts;
    fail(path,
         fmt::format("[{}][{}][{}]: must be 0 or 1", row / file.shape[1], row % file.shape[1], element % num_experts));
  }
  return bytes[0] == 1;
}

}  // namespace

Placement read_device_map(const std::string& path) {
  const std::string bytes = read_file(path, ExitCode::usage);
  const DeviceMapFile file = parse(bytes, path);
  const auto [num_devices, num_layers, num_experts] = file.shape;
  std::vector<std::vector<std::int32_t>> held(at(num_devices * num_layers));  // [devices, layers]
  std::size_t most_held = 0;
  for (std::int64_t row = 0; row < num_devices * num_layers; ++row) {
    for (std::int64_t expert = 0; expert < num_experts; ++expert) {
      if (is_held(file, row * num_experts + expert, path)) {
        held[at(row)].push_back(static_cast<std::int32_t>(expert));
      }
    }
    most_held = std::max(most_held, held[at(row)].size());
  }
  Placement placement{num_layers, num_experts, num_devices, static_cast<std::int64_t>(most_held), {}};
  if (placement.num_slots() > std::numeric_limits<std::int32_t>::max()) {
    fail(path, fmt::format("{} slots per layer: at most {}", placement.num_slots(),
                           std::numeric_limits<std::int32_t>::max()));
  }
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    for (std::int64_t device = 0; device < num_devices; ++device) {
      std::vector<std::int32_t>& experts = held[at(device * num_layers + layer)];
      experts.resize(most_held, Placement::empty_slot);
      placement.slot_to_expert.insert(placement.slot_to_expert.end(), experts.begin(), experts.end());
    }
  }
  check_placement(placement, num_layers, num_experts, num_devices, path);
  return placement;
}

}  // namespace metro
