#include "bench/counts_file.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/integers.hpp"
#include "base/json.hpp"
#include "routing/mixed_bits.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace metro {

namespace {

using nlohmann::json;

constexpr std::int64_t most_experts = 1 << 16;
constexpr std::int64_t most_rows = 1 << 24;  // of an expert, and of a batch

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
  throw Error(ExitCode::input, one_line(fmt::format("{}: {}", path, problem)));
}

std::vector<std::int32_t> batch_of(const json& values, std::int64_t num_experts, std::size_t batch,
                                   const std::string& path) {
  if (!values.is_array() || std::ssize(values) != num_experts) {
    fail(path, fmt::format("batch {} of \"counts\" must be a list of num_experts = {} integers", batch, num_experts));
  }
  std::vector<std::int32_t> counts;
  std::int64_t num_rows = 0;
  for (const json& value : values) {
    const bool is_count = value.is_number_integer() && value >= 0 && value <= most_rows;
    num_rows += is_count ? value.get<std::int64_t>() : 0;
    if (!is_count || num_rows > most_rows) {
      fail(path,
           fmt::format("batch {} of \"counts\": {} for expert {}; counts are integers from 0, at most {} in a batch",
                       batch, value.dump(), counts.size(), most_rows));
    }
    counts.push_back(value.get<std::int32_t>());
  }
  return counts;
}

}  // namespace

CountsFile read_counts(const std::string& path) {
  const json document = parse_json(read_file(path, ExitCode::input), path, ExitCode::input);
  if (!document.is_object() || !document.contains("num_experts") || !document.contains("counts")) {
    fail(path, R"(must be an object with "num_experts" and "counts")");
  }
  const json& num_experts = document.at("num_experts");
  if (!num_experts.is_number_integer() || num_experts < 1 || num_experts > most_experts) {
    fail(path, fmt::format("\"num_experts\" = {}: must be an integer from 1 to {}", num_experts.dump(), most_experts));
  }
  const json& batches = document.at("counts");
  if (!batches.is_array() || batches.empty()) {
    fail(path, "\"counts\" must be a list of at least one batch");
  }
  CountsFile file{num_experts.get<std::int64_t>(), {}};
  for (const json& values : batches) {
    file.batches.push_back(batch_of(values, file.num_experts, file.batches.size(), path));
  }
  return file;
}

std::vector<std::int32_t> ids_with_counts(const std::vector<std::int32_t>& counts, std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    ids.insert(ids.end(), at(counts[expert]), static_cast<std::int32_t>(expert));
  }
  const std::uint64_t key = mixed_bits(seed);
  for (std::size_t left = ids.size(); left > 1; --left) {
    std::swap(ids[left - 1], ids[below(left, mixed_bits(key ^ left))]);
  }
  return ids;
}

}  // namespace metro
