// The expert FFN of decode when only the device knows which rows go to which expert: the work lists are those of the
// routing step (routing.hpp), and what is launched depends on nothing but sizes that are known beforehand.
#pragma once

#include "kernels/buffer.hpp"
#include "kernels/experts.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// Packed matrices of one slot. nullptr: the slot is empty.
struct ExpertWeightPointers {
  const void* gate;
  const void* up;
  const void* down;
};

// Where the weights of the own slots of one layer lie, in memory of kernels. Made once per layer and placement.
class ExpertWeightTable {
 public:
  // of_slots [slots_per_rank]; without data for an empty slot. The others have one shape and one stored type per
  // matrix; there is at least one of them. Waits for a copy.
  explicit ExpertWeightTable(std::span<const ExpertWeights> of_slots);

  std::int64_t num_slots() const { return static_cast<std::int64_t>(of_slots_.size()); }
  // Any of the experts, for what they have in common.
  const ExpertWeights& shape() const { return shape_; }
  const ExpertWeightPointers* pointers() const { return pointers_.data(); }  // [num_slots], memory of kernels
  const std::vector<ExpertWeights>& of_slots() const { return of_slots_; }
  std::int64_t num_bytes() const { return pointers_.num_bytes(); }

 private:
  std::vector<ExpertWeights> of_slots_;
  ExpertWeights shape_;
  Buffer<ExpertWeightPointers> pointers_;
};

// Own slot s computes the assignments work[work_begin[s]] .. work[work_begin[s + 1] - 1]; the input of assignment a are
// the H floats at rows + a / top_k * row_stride. Memory of kernels.
struct ListedRows {
  const std::int32_t* work_begin = nullptr;  // [num_slots + 1]
  const std::int32_t* work = nullptr;        // [work_begin[num_slots]]
  std::int64_t max_work = 0;                 // no more assignments than that
  const float* rows = nullptr;
  std::int64_t row_stride = 0;  // floats
  std::int64_t top_k = 1;
};

// y[i, :] = expert of the slot that has work[i], of its input, unweighted. hidden [max_work, F] scratch, y [max_work,
// H]; what is beyond the work stays. Sums as in linear(). Two kernels, whatever the lists hold.
void listed_expert_ffn(const ExpertWeightTable& table, const ListedRows& rows, float* hidden, float* y);

}  // namespace metro
