// cuBLAS's grouped matrix product in the queue of kernels: one call computes many products of matrices in bf16, in
// groups of one shape each. Matrices are column-major, as cuBLAS has them: element (i, j) is at i + j * leading.
//
// From NVIDIA's documentation: shapes, counts and scale factors are arrays of the host, read during the call; the
// arrays of pointers are memory of the device; A, B and C have one type of bf16, fp16 and fp32, sums are fp32. What of
// this no GPU has confirmed yet is in docs/gpu_kernels.md.
#pragma once

#include "kernels/buffer.hpp"
#include "kernels/mirror.hpp"

#include <cublas_v2.h>

#include <cstdint>
#include <vector>

namespace metro::cuda {

// Throws Error(machine) unless `result` is CUBLAS_STATUS_SUCCESS: "CALL failed: ", what cuBLAS says, and the remedy.
void check(cublasStatus_t result, const char* call);

// cuBLAS in the queue of kernels, with workspace of ours, so that it allocates none in steps.
class Cublas {
 public:
  static constexpr std::int64_t workspace_bytes = std::int64_t{32} << 20;  // what is advised for compute capability 9

  // Throws Error(machine) if cuBLAS does not start.
  Cublas();
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  cublasHandle_t handle() const { return handle_; }
  std::int64_t num_bytes() const { return workspace_.num_bytes(); }

 private:
  RawBuffer workspace_;
  cublasHandle_t handle_ = nullptr;
};

// C [m, n] = A [m, k] B [k, n]
struct GroupShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t leading_a = 0, leading_b = 0, leading_c = 0;
};

// A list of products, and the call that computes it.
class GroupedProducts {
 public:
  GroupedProducts(std::int64_t most_groups, std::int64_t most_products);

  // A list may be filled again after wait_for_kernels().
  void clear();
  void begin_group(const GroupShape& shape);
  // To the group begun last, which must not stay empty.
  void add(const void* a, const void* b, void* c);

  // In queue order, like a kernel; an empty list does nothing.
  void enqueue(const Cublas& cublas);

  std::int64_t num_bytes() const { return pointers_.num_bytes(); }
  static std::int64_t planned_bytes(std::int64_t most_products);

 private:
  std::int64_t most_products_;
  std::int64_t num_products_ = 0;
  Mirror<void*> pointers_;  // [3, most_products] of A, B, C
  // One per group; never more than at first was room for.
  std::vector<cublasOperation_t> operations_;
  std::vector<float> ones_, zeros_;
  std::vector<int> m_, n_, k_, leading_a_, leading_b_, leading_c_, group_sizes_;
};

}  // namespace metro::cuda
