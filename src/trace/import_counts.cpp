#include "trace/import_counts.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <numeric>

namespace metro {

namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& path, const std::string& complaint) {
  throw Error(ExitCode::input, fmt::format("{}: {}", path, complaint));
}

std::int64_t integer_at(const json& value, const std::string& path, const std::string& place) {
  if (!value.is_number_integer() || value > std::numeric_limits<std::int64_t>::max()) {
    fail(path, fmt::format("{} must be an integer", place));
  }
  return value.get<std::int64_t>();
}

const json& array_at(const json& object, const char* key, const std::string& path) {
  if (!object.is_object() || !object.contains(key) || !object.at(key).is_array()) {
    fail(path, fmt::format("needs a key {} with an array", key));
  }
  return object.at(key);
}

}  // namespace

CountTable read_layer_counts(const std::string& path, TraceModel model) {
  const json document = parse_json(read_file(path, ExitCode::input), path, ExitCode::input);
  const json& layers = array_at(document, "layers", path);
  const json& counts = array_at(document, "counts", path);
  if (layers.size() != counts.size()) {
    fail(path, fmt::format("layers names {} layers, counts has {}", layers.size(), counts.size()));
  }
  CountTable table;
  table.model = std::move(model);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::int64_t layer = integer_at(layers[i], path, fmt::format("layers[{}]", i));
    if (layer < 0 || layer > std::numeric_limits<std::int32_t>::max()) {
      fail(path, fmt::format("layers[{}] = {}: must be the number of a layer", i, layer));
    }
    table.model.layers.push_back(static_cast<std::int32_t>(layer));
    if (!counts[i].is_array() || std::ssize(counts[i]) != table.model.num_experts) {
      fail(path, fmt::format("counts[{}] must have {} integers", i, table.model.num_experts));
    }
    for (std::size_t expert = 0; expert < counts[i].size(); ++expert) {
      table.counts.push_back(integer_at(counts[i][expert], path, fmt::format("counts[{}][{}]", i, expert)));
    }
  }
  check_count_table(table, path);
  return table;
}

CountTable read_deepseek_moe_counts(const std::string& path) {
  CountTable table;
  table.model = {"deepseek", "DeepSeek-MoE-16B, counts, github.com/duterscmy/CD-MoE", 64, 6,
                 std::vector<std::int32_t>(27)};
  std::iota(table.model.layers.begin(), table.model.layers.end(), 1);
  const json document = parse_json(read_file(path, ExitCode::input), path, ExitCode::input);
  for (std::int64_t layer = 0; layer < table.model.num_layers(); ++layer) {
    for (std::int64_t expert = 0; expert < table.model.num_experts; ++expert) {
      const std::string key = fmt::format("{}-{}", layer, expert);
      const json& entry = array_at(document, key.c_str(), path);
      if (entry.size() != 3) {
        fail(path, fmt::format("{} must have three numbers", key));
      }
      table.counts.push_back(integer_at(entry[1], path, fmt::format("{}[1]", key)));
    }
  }
  check_count_table(table, path);
  return table;
}

}  // namespace metro
