// From tensors as they are stored to weights as the kernels read them. Every thread takes the next unit in file order
// and goes through it in pieces that stay in its cache: read, digest, packing. No second copy of the weights exists,
// and memory sees one pass of reading and one of writing. On the way to the memory of a device a piece lies in pinned
// memory while the thread reads the next.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "kernels/packed_matrix.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace metro {

// A matrix of a unit, [out, in] row-major as stored, and where it goes (memory of kernels, aligned to 64 bytes):
// packed, or as floats in the same order.
struct UnitPart {
  std::int64_t out = 1;
  std::int64_t in = 0;
  std::byte* destination = nullptr;
  bool as_floats = false;
  bool has_bias = false;  // packed with biases; weight_unit() says so
  // The transpose [in, out] is wanted as well, packed, at `transposed`.
  bool has_transposed = false;
  std::byte* transposed = nullptr;
};

struct WeightUnit {
  const TensorInfo* tensor = nullptr;
  const TensorInfo* scales = nullptr;  // of a tensor that has any, the same unit: parts one behind the other
  const TensorInfo* biases = nullptr;  // likewise, bf16 or f32, where the tensor has any
  std::int64_t unit_idx = 0;
  std::vector<UnitPart> parts;  // one behind the other, together the whole unit
  // As stored, scales and biases included.
  std::int64_t num_bytes() const {
    return tensor->unit_bytes() + (scales == nullptr ? 0 : scales->unit_bytes()) +
           (biases == nullptr ? 0 : biases->unit_bytes());
  }
  std::int64_t place_in_file() const { return tensor->file_offset + unit_idx * tensor->unit_bytes(); }
};

// A unit of `tensor`, with its scales and biases if it has any.
WeightUnit weight_unit(const WeightReader& reader, const TensorInfo& tensor, std::int64_t unit_idx,
                       std::vector<UnitPart> parts);

// Whether `tensor` is packed with the weights that it belongs to: scales, and biases of linear layers.
bool is_packed_with_weights(const WeightReader& reader, const TensorInfo& tensor);

// Bytes at a part's destination, all of which are written.
std::int64_t part_bytes(StoredType type, const UnitPart& part);
// The same of its transpose; 0 if none is wanted.
std::int64_t transposed_bytes(StoredType type, const UnitPart& part);

// Loads all units on at most num_threads threads. Throws Error(checkpoint) for the first unit, in file order, that
// cannot be read or is damaged; what is at the destinations is then of no use. Waits for the kernels.
void load_units(const WeightReader& reader, std::vector<WeightUnit> units, std::int64_t num_threads);

}  // namespace metro
