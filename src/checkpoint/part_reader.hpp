// Reads parts of datasets from a Hugging Face folder, as they are or as the numbers they stand for, and finds what is
// no number.
#pragma once

#include "checkpoint/convert_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace metro {

class PartReader {
 public:
  explicit PartReader(const SafetensorsFolder& folder) : folder_(folder) {}

  // Every method throws Error(checkpoint) naming file, tensor and element of a NaN or an infinity, and of a scale that
  // is none: negative, too large for finite weights, or 0 where the weights are not.

  // Bytes of a part from `offset` on; of e4m3 whole rows. Valid until the next call.
  std::span<const std::byte> stored(const PlannedPart& part, std::int64_t offset, std::int64_t num_bytes);

  // Rows of a part as floats; those of e4m3 and e2m1 times their scales. Valid until the next call.
  std::span<const float> floats(const PlannedPart& part, std::int64_t first_row, std::int64_t num_rows);

  // Scales of a part of e4m3, as many as in the folder. Valid until another part's are asked for.
  std::span<const float> fp8_scales(const PlannedPart& part);

  // The published exponents of rows of a part of e2m1. Valid until the next call.
  std::span<const std::byte> exponents(const PlannedPart& part, std::int64_t first_row, std::int64_t num_rows);

 private:
  [[noreturn]] void fail(const std::string& tensor, const SafetensorsEntry& entry, std::int64_t element,
                         const std::string& complaint) const;

  const SafetensorsFolder& folder_;
  std::vector<std::byte> bytes_, exponents_;
  std::vector<float> floats_, scales_;
  std::string scales_of_;  // the part whose scales are read
};

}  // namespace metro
