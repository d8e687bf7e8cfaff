#include "model/family.hpp"

#include "base/error.hpp"
#include "model/config_fields.hpp"
#include "model/families/family_entry.hpp"
#include "model/quantization.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace metro {

namespace {

// The list of families: a new one is a file in families/ and a line here.
std::vector<FamilyEntry> families() {
  return {deepseek_moe_family(), deepseek_v2_family(), deepseek_v3_family(), gpt_oss_family(),   kimi_k2_family(),
          mixtral_family(),      olmoe_family(),       phimoe_family(),      qwen2_moe_family(), qwen3_moe_family()};
}

std::optional<FamilyEntry> find_family(const std::string& model_type) {
  for (const FamilyEntry& family : families()) {
    if (model_type == family.model_type) {
      return family;
    }
  }
  return std::nullopt;
}

std::vector<std::int32_t> read_end_tokens(const ConfigFields& config, const std::optional<ConfigFields>& generation,
                                          std::int64_t vocab_size) {
  const bool generation_wins = generation && generation->has("eos_token_id");
  const ConfigFields& chosen = generation_wins ? *generation : config;
  std::vector<std::int32_t> tokens;
  for (const std::int64_t token : chosen.integers("eos_token_id", {0, vocab_size - 1})) {
    const auto id = static_cast<std::int32_t>(token);
    if (std::find(tokens.begin(), tokens.end(), id) == tokens.end()) {
      tokens.push_back(id);
    }
  }
  return tokens;
}

}  // namespace

ModelSpec parse_model_spec(std::string_view config_json, std::optional<std::string_view> generation_config_json) {
  const ConfigFields config(config_json, "config.json");
  std::optional<ConfigFields> generation;
  if (generation_config_json) {
    generation.emplace(*generation_config_json, "generation_config.json");
  }
  const std::string model_type = config.text("model_type");
  const auto family = find_family(model_type);
  if (!family) {
    config.refuse("model_type", fmt::format("is not supported (supported: {})", fmt::join(supported_families(), ", ")));
  }
  check_quantization(config);

  ModelSpec spec = family->parse(config);
  spec.family = model_type;
  spec.end_tokens = read_end_tokens(config, generation, spec.vocab_size);
  return spec;
}

std::vector<TensorSource> tensor_sources(const ModelSpec& spec) {
  const auto family = find_family(spec.family);
  METRO_REQUIRE(family.has_value(), spec.family);
  return family->tensor_sources(spec);
}

std::vector<std::int64_t> matrix_shape(const TensorSource& source) {
  // Parts are stacked along the leading axis of the dataset, or of one expert of it.
  std::vector<std::int64_t> shape = source.shape;
  auto num_parts = static_cast<std::int64_t>(source.parts.size());
  METRO_REQUIRE(num_parts > 0 && !shape.empty(), source.dataset);
  if (source.per_expert) {
    const std::int64_t experts_of_part = source.order.holds_all_experts ? 1 : shape.front();
    METRO_REQUIRE(shape.size() > 1 && num_parts % experts_of_part == 0, source.dataset);
    num_parts /= experts_of_part;
    shape.erase(shape.begin());
  }
  METRO_REQUIRE(shape.front() % num_parts == 0, source.dataset);
  shape.front() /= num_parts;
  return shape;
}

std::vector<std::int64_t> part_shape(const TensorSource& source) {
  std::vector<std::int64_t> shape = matrix_shape(source);
  if (source.order.is_transposed) {
    METRO_REQUIRE(shape.size() == 2, source.dataset);
    std::swap(shape[0], shape[1]);
  }
  if (source.order.holds_all_experts) {
    METRO_REQUIRE(source.per_expert, source.dataset);
    shape.insert(shape.begin(), source.shape.front());
  }
  return shape;
}

std::vector<std::string> supported_families() {
  std::vector<std::string> names;
  for (const FamilyEntry& family : families()) {
    names.emplace_back(family.model_type);
  }
  return names;
}

}  // namespace metro
