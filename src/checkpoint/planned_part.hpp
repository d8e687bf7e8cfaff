// Finding the tensors of a folder that a dataset is made of: shapes and types are checked, scales looked up.
#pragma once

#include "checkpoint/convert_plan.hpp"

namespace metro {

// The tensor `name` of the folder, or, if that is not there, name_blocks and name_scales, which stand for it in mxfp4.
// Throws Error(checkpoint) naming file, tensor and expectation.
PlannedPart plan_part(const TensorSource& source, const std::string& name, const SafetensorsFolder& folder,
                      const std::string& folder_path);

}  // namespace metro
