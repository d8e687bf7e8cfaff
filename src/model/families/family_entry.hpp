// What a file of this folder gives to family.cpp, which lists the families.
#pragma once

#include "model/config_fields.hpp"
#include "model/family.hpp"

#include <vector>

namespace metro {

struct FamilyEntry {
  const char* model_type;  // as in config.json
  // Everything but family and end_tokens, which are the same for all families.
  ModelSpec (*parse)(const ConfigFields& config);
  std::vector<TensorSource> (*tensor_sources)(const ModelSpec& spec);
};

FamilyEntry deepseek_moe_family();
FamilyEntry deepseek_v2_family();
FamilyEntry deepseek_v3_family();
FamilyEntry gpt_oss_family();
FamilyEntry kimi_k2_family();
FamilyEntry mixtral_family();
FamilyEntry olmoe_family();
FamilyEntry phimoe_family();
FamilyEntry qwen2_moe_family();
FamilyEntry qwen3_moe_family();

}  // namespace metro
