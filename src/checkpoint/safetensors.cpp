#include "checkpoint/safetensors.hpp"

#include "base/file.hpp"
#include "base/json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>

namespace metro {

using nlohmann::json;

namespace {

constexpr ExitCode on_failure = ExitCode::checkpoint;
constexpr std::int64_t length_bytes = 8;
constexpr std::int64_t max_header_bytes = 100'000'000;  // the limit of the format

[[noreturn]] void fail(const std::string& path, const std::string& complaint) {
  throw Error(on_failure, fmt::format("{}: {}", path, complaint));
}

// Bytes of one element; nothing for a type this program does not know (such a tensor cannot be used anyway).
std::optional<std::int64_t> element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::int64_t> known = {
      {"BOOL", 1}, {"U8", 1},   {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"U16", 2}, {"I16", 2},
      {"F16", 2},  {"BF16", 2}, {"U32", 4}, {"I32", 4},     {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8}};
  const auto found = known.find(dtype);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

// A list of integers of 0 and above.
std::vector<std::int64_t> read_sizes(const json& value, const std::string& path, const std::string& what) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::vector<std::int64_t> sizes;
  for (const json& element : value.is_array() ? value : json::array({nullptr})) {
    if (!element.is_number_unsigned() || element.get<std::uint64_t>() > most) {
      fail(path, fmt::format("{} is not a list of sizes", what));
    }
    sizes.push_back(element.get<std::int64_t>());
  }
  return sizes;
}

// Product of the extents and `bytes`, or nothing if it exceeds `most`.
std::optional<std::int64_t> bounded_bytes(const std::vector<std::int64_t>& shape, std::int64_t bytes,
                                          std::int64_t most) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return 0;
  }
  for (const std::int64_t extent : shape) {
    if (extent > most / bytes) {
      return std::nullopt;
    }
    bytes *= extent;
  }
  return bytes;
}

// One entry of the header; `data_bytes` is how many bytes follow the header.
SafetensorsEntry read_entry(const std::string& path, const std::string& name, const json& value,
                            std::int64_t data_bytes) {
  const std::string shown = fmt::format("tensor {}", name);
  if (!value.is_object() || !value.contains("dtype") || !value.at("dtype").is_string() || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    fail(path, shown + " needs dtype, shape and data_offsets");
  }
  SafetensorsEntry entry;
  entry.dtype = value.at("dtype").get<std::string>();
  entry.shape = read_sizes(value.at("shape"), path, "shape of " + shown);
  const auto range = read_sizes(value.at("data_offsets"), path, "data_offsets of " + shown);
  if (range.size() != 2 || range[0] > range[1] || range[1] > data_bytes) {
    fail(path, fmt::format("{} has data_offsets {}, but the file has {} bytes of data", shown, range, data_bytes));
  }
  entry.file_offset = range[0];
  entry.num_bytes = range[1] - range[0];
  const auto bytes = element_bytes(entry.dtype);
  if (bytes && bounded_bytes(entry.shape, *bytes, data_bytes) != entry.num_bytes) {
    fail(path, fmt::format("{} of type {} and shape {} cannot have {} bytes", shown, entry.dtype, entry.shape,
                           entry.num_bytes));
  }
  return entry;
}

std::string read_header(const FileDescriptor& file) {
  const std::int64_t file_bytes = file.size(on_failure);
  std::array<std::byte, length_bytes> prefix{};
  if (file_bytes < length_bytes) {
    fail(file.path(), fmt::format("has {} bytes: not a safetensors file", file_bytes));
  }
  file.read_at(0, prefix, on_failure);
  std::uint64_t header_bytes = 0;
  for (std::size_t idx = prefix.size(); idx-- > 0;) {
    header_bytes = header_bytes << 8 | std::to_integer<std::uint64_t>(prefix[idx]);
  }
  if (header_bytes > static_cast<std::uint64_t>(std::min(max_header_bytes, file_bytes - length_bytes))) {
    fail(file.path(), fmt::format("claims a header of {} bytes; the file has {} and {} are allowed: not a safetensors "
                                  "file, or truncated",
                                  header_bytes, file_bytes, max_header_bytes));
  }
  std::string header(static_cast<std::size_t>(header_bytes), '\0');
  file.read_at(length_bytes, std::as_writable_bytes(std::span(header)), on_failure);
  return header;
}

void refuse_overlaps(const std::string& path, const std::map<std::string, SafetensorsEntry>& entries) {
  std::vector<const std::pair<const std::string, SafetensorsEntry>*> sorted;
  for (const auto& named : entries) {
    if (named.second.num_bytes > 0) {
      sorted.push_back(&named);
    }
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->second.file_offset < b->second.file_offset; });
  for (std::size_t idx = 1; idx < sorted.size(); ++idx) {
    const auto& before = sorted[idx - 1]->second;
    if (before.file_offset + before.num_bytes > sorted[idx]->second.file_offset) {
      fail(path, fmt::format("tensors {} and {} overlap", sorted[idx - 1]->first, sorted[idx]->first));
    }
  }
}

std::map<std::string, SafetensorsEntry> read_entries(const FileDescriptor& file) {
  const std::string& path = file.path();
  const std::string text = read_header(file);
  const json header = parse_json(text, path + ": header", on_failure);
  if (!header.is_object()) {
    fail(path, "the header is not a JSON object");
  }
  const std::int64_t data_start = length_bytes + static_cast<std::int64_t>(text.size());
  const std::int64_t data_bytes = file.size(on_failure) - data_start;
  std::map<std::string, SafetensorsEntry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      SafetensorsEntry entry = read_entry(path, name, value, data_bytes);
      entry.file_offset += data_start;
      entries.emplace(name, std::move(entry));
    }
  }
  refuse_overlaps(path, entries);
  return entries;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::string& folder) {
  const std::string single = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) {
    add_file(single);
  } else if (std::filesystem::exists(index, ignored)) {
    add_shards(folder, index);
  } else {
    fail(folder, "has neither model.safetensors nor model.safetensors.index.json");
  }
}

void SafetensorsFolder::add_file(const std::string& path) {
  files_.push_back(FileDescriptor::open_to_read(path, on_failure));
  for (auto& [name, entry] : read_entries(files_.back())) {
    entry.file_idx = files_.size() - 1;
    const auto [place, is_new] = tensors_.emplace(name, std::move(entry));
    if (!is_new) {
      fail(path, fmt::format("tensor {} is also in {}", name, path_of(place->second)));
    }
  }
}

void SafetensorsFolder::add_shards(const std::string& folder, const std::string& index_path) {
  const json index = parse_json(read_file(index_path, on_failure), index_path, on_failure);
  if (!index.is_object() || !index.contains("weight_map") || !index.at("weight_map").is_object()) {
    fail(index_path, "has no object weight_map");
  }
  std::map<std::string, std::string> tensor_to_shard;
  std::set<std::string> shards;
  for (const auto& [name, shard] : index.at("weight_map").items()) {
    const std::string file_name = shard.is_string() ? shard.get<std::string>() : "";
    if (file_name.empty() || file_name == "." || file_name == ".." ||
        file_name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      fail(index_path,
           fmt::format("tensor {} is said to be in {}, which is not a plain file name", name, shard.dump()));
    }
    tensor_to_shard.emplace(name, file_name);
    shards.insert(file_name);
  }
  for (const std::string& shard : shards) {
    add_file(folder + "/" + shard);
  }
  for (const auto& [name, shard] : tensor_to_shard) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || path_of(found->second) != folder + "/" + shard) {
      fail(index_path, fmt::format("tensor {} is not in {}", name, shard));
    }
  }
}

void SafetensorsFolder::read(const SafetensorsEntry& entry, std::int64_t offset, std::span<std::byte> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  METRO_REQUIRE(offset >= 0 && count <= entry.num_bytes && offset <= entry.num_bytes - count,
                "read outside a tensor of " + path_of(entry));
  files_[entry.file_idx].read_at(entry.file_offset + offset, out, on_failure);
}

}  // namespace metro
