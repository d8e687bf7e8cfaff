#include "checkpoint/convert_plan.hpp"

#include "checkpoint/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <numeric>
#include <set>

namespace metro {

namespace {

SourceType source_type_of(const SafetensorsEntry& entry, const std::string& name, const std::string& path) {
  if (entry.dtype == "BF16") {
    return SourceType::bf16;
  }
  if (entry.dtype == "F16") {
    return SourceType::f16;
  }
  if (entry.dtype == "F32") {
    return SourceType::f32;
  }
  throw Error(ExitCode::checkpoint, fmt::format("{}: tensor {} has type {}, which is not supported (BF16, F16, F32)",
                                                path, name, entry.dtype));
}

PlannedPart plan_part(const TensorSource& source, const std::string& name, const SafetensorsFolder& folder,
                      const std::string& folder_path) {
  const auto found = folder.tensors().find(name);
  if (found == folder.tensors().end()) {
    throw Error(ExitCode::checkpoint,
                fmt::format("{}: tensor {} is missing (needed for {})", folder_path, name, source.dataset));
  }
  const std::string& path = folder.path_of(found->second);
  const auto expected = part_shape(source);
  if (found->second.shape != expected) {
    throw Error(ExitCode::checkpoint, fmt::format("{}: tensor {} has shape {}, config.json asks for {}", path, name,
                                                  found->second.shape, expected));
  }
  const auto matrix = matrix_shape(source);
  const std::int64_t columns = std::accumulate(matrix.begin() + 1, matrix.end(), std::int64_t{1}, std::multiplies<>());
  return {name, &found->second, source_type_of(found->second, name, path), source.order, matrix.front(), columns};
}

// "model.layers.17.mlp.experts.3.w" -> "model.layers.*.mlp.experts.*.w", so that notes stay short.
std::string without_numbers(const std::string& name) {
  std::string pattern;
  for (const char letter : name) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(letter)) != 0;
    const bool in_number = !pattern.empty() && pattern.back() == '*';
    const bool starts_number = is_digit && !pattern.empty() && pattern.back() == '.';
    if (starts_number) {
      pattern += '*';
    } else if (!(is_digit && in_number)) {
      pattern += letter;
    }
  }
  return pattern;
}

class Notes {
 public:
  // Counts `name` under a text.
  void add(const std::string& text, const std::string& name) { ++counts_[text][without_numbers(name)]; }

  // "<text>: <pattern> (n), <pattern> (n) and m more kinds"
  std::vector<std::string> lines() const {
    constexpr std::size_t max_shown = 8;
    std::vector<std::string> result;
    for (const auto& [text, patterns] : counts_) {
      std::vector<std::string> shown;
      for (const auto& [pattern, count] : patterns) {
        if (shown.size() < max_shown) {
          shown.push_back(fmt::format("{} ({})", pattern, count));
        }
      }
      const std::size_t hidden = patterns.size() - shown.size();
      result.push_back(fmt::format("{}: {}{}", text, fmt::join(shown, ", "),
                                   hidden == 0 ? "" : fmt::format(" and {} more kinds", hidden)));
    }
    return result;
  }

 private:
  std::map<std::string, std::map<std::string, std::int64_t>> counts_;
};

StoredType choose_stored_type(const std::vector<PlannedPart>& parts, const std::string& dataset, Notes& notes) {
  std::set<SourceType> types;
  for (const PlannedPart& part : parts) {
    types.insert(part.type);
  }
  if (types.size() > 1) {
    notes.add("parts of different types, widened to f32 (exact)", dataset);
  } else if (types.count(SourceType::f16) != 0) {
    notes.add("f16 widened to f32 (exact)", dataset);
  }
  return types == std::set{SourceType::bf16} ? StoredType::bf16 : StoredType::f32;
}

// Of the dataset `weights`, which is int8.
TensorInfo scales_for(const TensorInfo& weights) {
  TensorInfo scales;
  scales.dataset = layout::scale_of(weights.dataset);
  scales.type = StoredType::f32;
  scales.shape.assign(weights.shape.begin(), weights.shape.end() - 1);
  scales.is_expert_tensor = weights.is_expert_tensor;
  return scales;
}

}  // namespace

ConvertPlan plan_conversion(const std::vector<TensorSource>& sources, const SafetensorsFolder& folder,
                            const std::string& folder_path, ConvertedWeights weights) {
  ConvertPlan plan;
  Notes notes;
  std::set<std::string> used;
  for (const TensorSource& source : sources) {
    std::vector<PlannedPart> parts;
    for (const std::string& name : source.parts) {
      parts.push_back(plan_part(source, name, folder, folder_path));
      used.insert(name);
    }
    TensorInfo tensor;
    tensor.dataset = source.dataset;
    tensor.shape = source.shape;
    tensor.is_expert_tensor = source.per_expert;
    if (weights == ConvertedWeights::int8 && source.may_be_int8) {
      tensor.type = StoredType::int8;
      for (const PlannedPart& part : parts) {
        notes.add("quantised to int8, with a scale per output channel", part.name);
      }
      plan.tensors.push_back(tensor);
      plan.parts.push_back(std::move(parts));
      plan.tensors.push_back(scales_for(tensor));
      plan.parts.emplace_back();
      continue;
    }
    tensor.type = choose_stored_type(parts, source.dataset, notes);
    plan.tensors.push_back(std::move(tensor));
    plan.parts.push_back(std::move(parts));
  }
  for (const auto& [name, entry] : folder.tensors()) {
    if (used.count(name) == 0) {
      notes.add("not used", name);
    }
  }
  plan.notes = notes.lines();
  return plan;
}

}  // namespace metro
