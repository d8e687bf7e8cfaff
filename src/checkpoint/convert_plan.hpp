// What a conversion will do, found out and checked before anything is written.
#pragma once

#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/elements.hpp"
#include "checkpoint/safetensors.hpp"
#include "model/family.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct PlannedPart {
  std::string name;  // of the tensor in the folder
  const SafetensorsEntry* entry = nullptr;
  SourceType type = SourceType::bf16;
  PartOrder order = {};
  std::int64_t matrix_rows = 0, matrix_columns = 0;  // of the matrices it holds, as in the dataset
};

struct ConvertPlan {
  std::vector<TensorInfo> tensors;              // datasets to write, in file order; behind an int8 one its scales
  std::vector<std::vector<PlannedPart>> parts;  // of each dataset, in the order of their bytes; none of scales
  std::vector<std::string> notes;               // types widened, tensors not used
};

// Checks that every part is there with the right shape and a type that can be converted, and chooses the stored type of
// each dataset: int8 where `weights` asks for it and it may be, else bf16 if all its parts are, else f32. `folder` must
// outlive the plan. Throws Error(checkpoint).
ConvertPlan plan_conversion(const std::vector<TensorSource>& sources, const SafetensorsFolder& folder,
                            const std::string& folder_path, ConvertedWeights weights);

}  // namespace metro
