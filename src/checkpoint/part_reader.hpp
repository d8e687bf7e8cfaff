// Reads parts of a dataset in the order of the dataset, whatever way they lie in the folder (PartOrder,
// model/family.hpp).
#pragma once

#include "checkpoint/convert_plan.hpp"
#include "checkpoint/safetensors.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// One matrix as it lies in a folder.
struct SourceMatrix {
  std::int64_t num_rows = 0;       // of the dataset's matrix, whose rows are output channels
  std::int64_t num_columns = 0;    // of the dataset's matrix; 1 for a vector
  std::int64_t element_bytes = 0;  // 1, 2 or 4
  PartOrder order;
};

// `source` is the matrix as it lies in the folder, `arranged` the same as the dataset holds it: row-major, even rows
// before odd ones where it is interleaved. Both hold num_rows * num_columns elements.
void arrange_matrix(const SourceMatrix& matrix, std::span<const std::byte> source, std::span<std::byte> arranged);

class PartReader {
 public:
  // The folder must outlive it, and the parts that it is asked for too.
  explicit PartReader(const SafetensorsFolder& folder) : folder_(folder) {}

  // Bytes of the part in its own type and the dataset's order, from byte `offset` of that order on. A part that lies as
  // the dataset holds it is read where asked; of any other, two copies of one matrix (of one expert, where there are
  // several) are kept in memory, and going through a part from its begin to its end reads every byte once. Throws
  // Error(checkpoint) naming tensor and element of a NaN or an infinity.
  void read(const PlannedPart& part, std::int64_t offset, std::span<std::byte> bytes);

 private:
  void read_as_stored(const PlannedPart& part, std::int64_t offset, std::span<std::byte> bytes) const;
  // Makes arranged_ the matrix of this number.
  void arrange(const PlannedPart& part, std::int64_t matrix_idx);

  const SafetensorsFolder& folder_;
  std::vector<std::byte> source_, arranged_;
  const SafetensorsEntry* arranged_entry_ = nullptr;
  std::int64_t arranged_idx_ = 0;
};

}  // namespace metro
