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
  std::int64_t num_rows = 0, row_length = 0;  // in the dataset's order, of all experts that it holds
  PartOrder order = {};
  std::int64_t matrix_rows = 0, matrix_columns = 0;  // of the matrices it holds, as in the dataset
  // Of types with scales: e4m3 has a number per block of 128 x 128, e2m1 a byte per 32 weights.
  std::string scales_name;
  const SafetensorsEntry* scales = nullptr;
  SourceType scales_type = SourceType::f32;
};

struct ConvertPlan {
  std::vector<TensorInfo> tensors;              // datasets to write, in file order; behind one with scales these
  std::vector<std::vector<PlannedPart>> parts;  // of each dataset, in the order of their bytes; none of scales
  std::vector<std::string> notes;               // types changed, tensors not used
};

// Checks that every part is there with the right shape and a type that can be converted, and chooses the stored type of
// each dataset: int8 where `weights` asks for it and it may be; as published where all parts are of one type that it
// may have; bf16 for fp8 and mxfp4 where `weights` asks for it; else f32. `folder` must outlive the plan. Throws
// Error(checkpoint), and Error(usage) when `weights` makes no sense for this folder.
ConvertPlan plan_conversion(const std::vector<TensorSource>& sources, const SafetensorsFolder& folder,
                            const std::string& folder_path, ConvertedWeights weights);

}  // namespace metro
