#include "checkpoint/convert_plan.hpp"

#include "checkpoint/layout.hpp"
#include "checkpoint/planned_part.hpp"
#include "checkpoint/scaled_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

namespace metro {

namespace {

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

bool is_all(const std::vector<PlannedPart>& parts, SourceType type) {
  return std::all_of(parts.begin(), parts.end(), [type](const PlannedPart& part) { return part.type == type; });
}

bool keeps_scales(const TensorSource& source, ConvertedWeights weights) {
  return source.may_be_quantised && weights == ConvertedWeights::stored;
}

const char* name_of(SourceType type) {
  return type == SourceType::e4m3 ? "fp8" : "mxfp4";
}

// Chooses the stored type of datasets, and notes what of it changes weights.
class TypeChoice {
 public:
  TypeChoice(ConvertedWeights weights, Notes& notes) : weights_(weights), notes_(notes) {}

  StoredType choose(const TensorSource& source, const std::vector<PlannedPart>& parts) {
    const auto scaled =
        std::find_if(parts.begin(), parts.end(), [](const PlannedPart& part) { return has_scales(part.type); });
    has_scaled_ = has_scaled_ || scaled != parts.end();
    if (weights_ == ConvertedWeights::int8 && source.may_be_quantised) {
      return choose_int8(parts, scaled == parts.end() ? nullptr : &*scaled);
    }
    if (scaled != parts.end()) {
      return choose_for_scaled(source, parts);
    }
    if (is_all(parts, SourceType::bf16)) {
      return StoredType::bf16;
    }
    if (!is_all(parts, parts.front().type)) {
      notes_.add("parts of different types, widened to f32 (exact)", source.dataset);
    } else if (parts.front().type == SourceType::f16) {
      notes_.add("f16 widened to f32 (exact)", source.dataset);
    }
    return StoredType::f32;
  }

  // Whether any part had scales.
  bool has_scaled() const { return has_scaled_; }

 private:
  StoredType choose_int8(const std::vector<PlannedPart>& parts, const PlannedPart* scaled) {
    if (scaled != nullptr) {
      throw Error(ExitCode::usage,
                  fmt::format("convert: --weights int8: tensor {} is {} already; use stored, or bf16 to widen it",
                              scaled->name, name_of(scaled->type)));
    }
    for (const PlannedPart& part : parts) {
      notes_.add("quantised to int8, with a scale per output channel", part.name);
    }
    return StoredType::int8;
  }

  StoredType choose_for_scaled(const TensorSource& source, const std::vector<PlannedPart>& parts) {
    if (keeps_scales(source, weights_) && is_all(parts, SourceType::e4m3)) {
      return StoredType::fp8;
    }
    if (keeps_scales(source, weights_) && is_all(parts, SourceType::e2m1)) {
      return StoredType::mxfp4;
    }
    const bool becomes_bf16 =
        weights_ == ConvertedWeights::bf16 && std::all_of(parts.begin(), parts.end(), [](const PlannedPart& part) {
          return has_scales(part.type) || part.type == SourceType::bf16;
        });
    for (const PlannedPart& part : parts) {
      if (has_scales(part.type)) {
        const bool exact = !becomes_bf16 || part.type == SourceType::e2m1;
        notes_.add(fmt::format("{} {} to {}{}", name_of(part.type), exact ? "widened" : "rounded",
                               becomes_bf16 ? "bf16" : "f32", exact ? " (exact)" : ""),
                   part.name);
      }
    }
    return becomes_bf16 ? StoredType::bf16 : StoredType::f32;
  }

  ConvertedWeights weights_;
  Notes& notes_;
  bool has_scaled_ = false;
};

// Of the dataset `weights`, which is made of `source`.
TensorInfo scales_for(const TensorInfo& weights, const TensorSource& source) {
  TensorInfo scales;
  scales.dataset = layout::scale_of(weights.dataset);
  scales.type = scale_type(weights.type);
  scales.shape = scale_shape(weights.type, weights.shape, matrix_shape(source).front());
  scales.is_expert_tensor = weights.is_expert_tensor;
  return scales;
}

}  // namespace

ConvertPlan plan_conversion(const std::vector<TensorSource>& sources, const SafetensorsFolder& folder,
                            const std::string& folder_path, ConvertedWeights weights) {
  ConvertPlan plan;
  Notes notes;
  TypeChoice types(weights, notes);
  std::set<std::string> used;
  for (const TensorSource& source : sources) {
    std::vector<PlannedPart> parts;
    for (const std::string& name : source.parts) {
      parts.push_back(plan_part(source, name, folder, folder_path));
      used.insert({parts.back().name, parts.back().scales_name});
    }
    TensorInfo tensor;
    tensor.dataset = source.dataset;
    tensor.shape = source.shape;
    tensor.is_expert_tensor = source.per_expert;
    tensor.type = types.choose(source, parts);
    plan.tensors.push_back(tensor);
    plan.parts.push_back(std::move(parts));
    if (has_scales(tensor.type)) {
      plan.tensors.push_back(scales_for(tensor, source));
      plan.parts.emplace_back();
    }
  }
  if (weights == ConvertedWeights::bf16 && !types.has_scaled()) {
    throw Error(
        ExitCode::usage,
        fmt::format("convert: --weights bf16: {} has no fp8 or mxfp4 weights to widen; use stored", folder_path));
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
