// Streams tensors of a Hugging Face folder to their places in a checkpoint file: as they are, as another type, with or
// without scales.
#pragma once

#include "checkpoint/convert.hpp"
#include "checkpoint/convert_plan.hpp"
#include "checkpoint/file_descriptor.hpp"
#include "checkpoint/part_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace metro {

class TensorCopier {
 public:
  // All references must outlive it. `bytes_total` and `report` (may be empty) are for progress; chunk_bytes of a part
  // are read at a time, or one row where rows are longer and change their type. Every method throws Error(checkpoint)
  // naming tensor and element of what is no number, Error(machine) when writing fails.
  TensorCopier(const SafetensorsFolder& folder, const FileDescriptor& out, std::int64_t bytes_total,
               std::int64_t chunk_bytes, const std::function<void(const ConvertProgress&)>& report);

  // The parts of one dataset one behind the other, as bf16 or f32. Fills in its digests.
  void copy(const std::vector<PlannedPart>& parts, TensorInfo& tensor);

  // The parts of one int8, fp8 or mxfp4 dataset and of its scales. Fills in the digests of both.
  void copy(const std::vector<PlannedPart>& parts, TensorInfo& tensor, TensorInfo& scales);

 private:
  // Calls work(first_row, num_rows) for the rows of a part, as many at a time as are worth chunk_bytes.
  template <class F>
  void for_each_rows(const PlannedPart& part, const F& work) const;
  void report(std::int64_t num_bytes);

  PartReader reader_;
  const FileDescriptor& out_;
  std::int64_t chunk_bytes_;
  const std::function<void(const ConvertProgress&)>& report_;
  ConvertProgress progress_;
  std::vector<std::byte> exponents_;
  std::vector<std::uint16_t> words_;
  std::vector<float> scales_;
  std::vector<std::int8_t> quantised_;
};

}  // namespace metro
