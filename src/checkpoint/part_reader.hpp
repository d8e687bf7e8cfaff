// Reads parts of datasets from a Hugging Face folder in the order of the dataset, whatever way they lie there
// (PartOrder, model/family.hpp), as they are or as the numbers they stand for, and finds what is no number.
#pragma once

#include "checkpoint/convert_plan.hpp"
#include "checkpoint/safetensors.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace metro {

// One matrix as it lies in a folder.
struct SourceMatrix {
  std::int64_t num_rows = 0;       // of the dataset's matrix, whose rows are output channels
  std::int64_t num_columns = 0;    // of the dataset's matrix; 1 for a vector
  std::int64_t element_bytes = 0;  // 1, 2 or 4
  PartOrder order;

  std::int64_t num_bytes() const { return num_rows * num_columns * element_bytes; }
};

// `source` is the matrix as it lies in the folder, `arranged` the same as the dataset holds it: row-major, even rows
// before odd ones where it is interleaved. Both hold num_rows * num_columns elements.
void arrange_matrix(const SourceMatrix& matrix, std::span<const std::byte> source, std::span<std::byte> arranged);

// A tensor of a folder, read in the order of its dataset; of one in another order, two copies of one matrix (of one
// expert, where there are several) are kept, and going through it from its begin to its end reads every byte once.
class ArrangedTensor {
 public:
  // Reads `bytes` of the tensor as it lies, from `offset` on.
  using ReadAsStored = std::function<void(std::int64_t offset, std::span<std::byte> bytes)>;

  // Bytes of the dataset's order from `offset` on. `name`: of the tensor, for which matrices are kept.
  void read(const std::string& name, const SourceMatrix& matrix, const ReadAsStored& read_as_stored,
            std::int64_t offset, std::span<std::byte> bytes);

 private:
  std::vector<std::byte> source_, arranged_;
  std::string arranged_name_;  // of what arranged_ is
  std::int64_t arranged_idx_ = 0;
};

class PartReader {
 public:
  // The folder must outlive it.
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
  void read_as_stored(const PlannedPart& part, std::int64_t offset, std::span<std::byte> bytes);
  [[noreturn]] void fail(const std::string& tensor, const SafetensorsEntry& entry, std::int64_t element,
                         const std::string& complaint) const;

  const SafetensorsFolder& folder_;
  ArrangedTensor arranged_weights_, arranged_exponents_;
  std::vector<std::byte> bytes_, exponents_;
  std::vector<float> floats_, scales_;
  std::string scales_of_;  // the part whose scales are read
};

}  // namespace metro
