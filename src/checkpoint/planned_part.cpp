#include "checkpoint/planned_part.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "base/stored_type.hpp"
#include "model/quantization.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>
#include <span>

namespace metro {

namespace {

class PartFinder {
 public:
  PartFinder(const TensorSource& source, const SafetensorsFolder& folder, const std::string& folder_path)
      : source_(source), folder_(folder), folder_path_(folder_path) {}

  bool has(const std::string& name) const { return folder_.tensors().count(name) != 0; }

  const SafetensorsEntry& find(const std::string& name, const std::vector<std::int64_t>& shape) const {
    const auto found = folder_.tensors().find(name);
    if (found == folder_.tensors().end()) {
      throw Error(ExitCode::checkpoint,
                  fmt::format("{}: tensor {} is missing (needed for {})", folder_path_, name, source_.dataset));
    }
    if (found->second.shape != shape) {
      throw Error(ExitCode::checkpoint, fmt::format("{}: tensor {} has shape {}, config.json asks for {}",
                                                    folder_.path_of(found->second), name, found->second.shape, shape));
    }
    return found->second;
  }

  [[noreturn]] void refuse_type(const std::string& name, const SafetensorsEntry& entry, const char* allowed) const {
    throw Error(ExitCode::checkpoint, fmt::format("{}: tensor {} has type {}, which is not supported ({})",
                                                  folder_.path_of(entry), name, entry.dtype, allowed));
  }

  SourceType float_type(const std::string& name, const SafetensorsEntry& entry, const char* allowed) const {
    if (entry.dtype == "BF16") {
      return SourceType::bf16;
    }
    if (entry.dtype == "F16") {
      return SourceType::f16;
    }
    if (entry.dtype == "F32") {
      return SourceType::f32;
    }
    refuse_type(name, entry, allowed);
  }

 private:
  const TensorSource& source_;
  const SafetensorsFolder& folder_;
  const std::string& folder_path_;
};

std::int64_t product_of(std::span<const std::int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

// As the dataset holds it: one matrix, or one of each expert.
std::vector<std::int64_t> shape_in_dataset(const TensorSource& source) {
  return source.order.holds_all_experts ? source.shape : matrix_shape(source);
}

PlannedPart part_of(const TensorSource& source) {
  const std::vector<std::int64_t> shape = shape_in_dataset(source);
  const std::vector<std::int64_t> matrix = matrix_shape(source);
  PlannedPart part;
  part.order = source.order;
  part.matrix_rows = matrix.front();
  part.matrix_columns = product_of(std::span(matrix).subspan(1));
  part.row_length = shape.back();
  part.num_rows = product_of(std::span(shape).first(shape.size() - 1));
  return part;
}

void add_fp8_scales(const PartFinder& finder, const std::vector<std::int64_t>& shape, PlannedPart& part) {
  if (shape.size() != 2 || part.order.is_transposed || part.order.is_interleaved) {
    finder.refuse_type(part.name, *part.entry, "F8_E4M3 is for matrices of one expert, in their own order");
  }
  part.scales_name = part.name + fp8_scales_suffix;
  part.scales = &finder.find(part.scales_name, {ceil_div(shape[0], fp8_block), ceil_div(shape[1], fp8_block)});
  part.scales_type = finder.float_type(part.scales_name, *part.scales, "F32, BF16, F16");
}

// Rows of weights lie as rows whatever way the other forms of the tensor lie.
PlannedPart plan_mxfp4(const PartFinder& finder, const TensorSource& source, const std::string& name,
                       const std::string& folder_path) {
  std::vector<std::int64_t> shape = shape_in_dataset(source);
  if (shape.back() % mxfp4_block != 0) {
    throw Error(
        ExitCode::checkpoint,
        fmt::format("{}: tensor {}{} is mxfp4, but config.json gives it rows of {} weights, no whole blocks of {}",
                    folder_path, name, mxfp4_blocks_suffix, shape.back(), mxfp4_block));
  }
  PlannedPart part = part_of(source);
  part.order.is_transposed = false;
  part.name = name + mxfp4_blocks_suffix;
  part.type = SourceType::e2m1;
  part.scales_name = name + mxfp4_scales_suffix;
  shape.back() /= mxfp4_block;
  part.scales = &finder.find(part.scales_name, shape);
  shape.push_back(mxfp4_block / 2);
  part.entry = &finder.find(part.name, shape);
  for (const auto& [tensor, entry] : {std::pair(part.name, part.entry), std::pair(part.scales_name, part.scales)}) {
    if (entry->dtype != "U8") {
      finder.refuse_type(tensor, *entry, "U8");
    }
  }
  return part;
}

}  // namespace

PlannedPart plan_part(const TensorSource& source, const std::string& name, const SafetensorsFolder& folder,
                      const std::string& folder_path) {
  const PartFinder finder(source, folder, folder_path);
  const std::vector<std::int64_t> shape = part_shape(source);
  if (!finder.has(name) && finder.has(name + mxfp4_blocks_suffix)) {
    return plan_mxfp4(finder, source, name, folder_path);
  }
  PlannedPart part = part_of(source);
  part.name = name;
  part.entry = &finder.find(name, shape);
  if (part.entry->dtype == "F8_E4M3") {
    part.type = SourceType::e4m3;
    add_fp8_scales(finder, shape, part);
  } else {
    part.type = finder.float_type(name, *part.entry, "BF16, F16, F32, F8_E4M3");
  }
  return part;
}

}  // namespace metro
