// Streams tensors of a Hugging Face folder to their places in a checkpoint file: as they are, widened, or quantised.
#pragma once

#include "checkpoint/convert.hpp"
#include "checkpoint/convert_plan.hpp"
#include "checkpoint/file_descriptor.hpp"
#include "checkpoint/part_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace metro {

class TensorCopier {
 public:
  // All references must outlive it. `bytes_total` and `report` (may be empty) are for progress; chunk_bytes of a part
  // are read at a time, or one row where int8 rows are longer, or one matrix where parts are rearranged. Every method
  // throws Error(checkpoint) naming tensor and element of a NaN or an infinity, Error(machine) when writing fails.
  TensorCopier(const SafetensorsFolder& folder, const FileDescriptor& out, std::int64_t bytes_total,
               std::int64_t chunk_bytes, const std::function<void(const ConvertProgress&)>& report);

  // The parts of one dataset one behind the other, in the stored type of `tensor`. Fills in its digests.
  void copy(const std::vector<PlannedPart>& parts, TensorInfo& tensor);

  // The parts of one int8 dataset and of its scales. Fills in the digests of both.
  void quantise(const std::vector<PlannedPart>& parts, TensorInfo& tensor, TensorInfo& scales);

 private:
  // Rows of floats of a part from row `first_row` on.
  void read_rows(const PlannedPart& part, std::int64_t first_row, std::int64_t num_rows, std::int64_t row_length);
  void report(std::int64_t num_bytes);

  PartReader parts_;
  const FileDescriptor& out_;
  std::int64_t chunk_bytes_;
  const std::function<void(const ConvertProgress&)>& report_;
  ConvertProgress progress_;
  std::vector<std::byte> source_, widened_;
  std::vector<float> rows_, scales_;
  std::vector<std::int8_t> quantised_;
};

}  // namespace metro
