#include "kernels/cuda/grouped_gemm.hpp"

#include "base/error.hpp"
#include "kernels/cuda/device_queue.hpp"
#include "kernels/portable/launch_count.hpp"

#include <limits>
#include <string>

namespace metro::cuda {

namespace {

enum Operand { of_a, of_b, of_c, num_operands };

int as_int(std::int64_t value) {
  METRO_REQUIRE(value >= 0 && value <= std::numeric_limits<int>::max(),
                std::to_string(value) + " is no size for cuBLAS");
  return static_cast<int>(value);
}

}  // namespace

void check(cublasStatus_t result, const char* call) {
  if (result != CUBLAS_STATUS_SUCCESS) {
    throw Error(ExitCode::machine, std::string(call) + " failed: " + cublasGetStatusString(result) + " (" +
                                       cublasGetStatusName(result) + ", " + std::to_string(static_cast<int>(result)) +
                                       "); kernels.reproducible = \"on\" does without cuBLAS");
  }
}

Cublas::Cublas() : workspace_("workspace of cuBLAS", workspace_bytes, FirstContent::unspecified) {
  check(cublasCreate(&handle_), "cublasCreate");
  try {
    check(cublasSetStream(handle_, queue()), "cublasSetStream");
    check(cublasSetWorkspace(handle_, workspace_.data(), static_cast<std::size_t>(workspace_bytes)),
          "cublasSetWorkspace");  // last: a new stream takes it away
  } catch (const Error&) {
    static_cast<void>(cublasDestroy(handle_));  // no destructor follows
    throw;
  }
}

// What fails here has failed before.
Cublas::~Cublas() {
  static_cast<void>(cublasDestroy(handle_));
}

GroupedProducts::GroupedProducts(std::int64_t most_groups, std::int64_t most_products)
    : most_products_(most_products),
      pointers_("matrices of grouped products", num_operands * most_products),
      operations_(static_cast<std::size_t>(most_groups), CUBLAS_OP_N),
      ones_(static_cast<std::size_t>(most_groups), 1.0F),
      zeros_(static_cast<std::size_t>(most_groups), 0.0F) {
  for (std::vector<int>* const sizes : {&m_, &n_, &k_, &leading_a_, &leading_b_, &leading_c_, &group_sizes_}) {
    sizes->reserve(static_cast<std::size_t>(most_groups));
  }
}

void GroupedProducts::clear() {
  num_products_ = 0;
  for (std::vector<int>* const sizes : {&m_, &n_, &k_, &leading_a_, &leading_b_, &leading_c_, &group_sizes_}) {
    sizes->clear();
  }
}

void GroupedProducts::begin_group(const GroupShape& shape) {
  METRO_REQUIRE(m_.size() < operations_.size(),
                std::to_string(m_.size()) + " groups are no more than there is room for");
  m_.push_back(as_int(shape.m));
  n_.push_back(as_int(shape.n));
  k_.push_back(as_int(shape.k));
  leading_a_.push_back(as_int(shape.leading_a));
  leading_b_.push_back(as_int(shape.leading_b));
  leading_c_.push_back(as_int(shape.leading_c));
  group_sizes_.push_back(0);
}

void GroupedProducts::add(const void* a, const void* b, void* c) {
  METRO_REQUIRE(num_products_ < most_products_, std::to_string(num_products_) + " products are all there is room for");
  pointers_[of_a * most_products_ + num_products_] = const_cast<void*>(a);  // one array for all three kinds
  pointers_[of_b * most_products_ + num_products_] = const_cast<void*>(b);
  pointers_[of_c * most_products_ + num_products_] = c;
  ++num_products_;
  ++group_sizes_.back();
}

void GroupedProducts::enqueue(const Cublas& cublas) {
  if (num_products_ == 0) {
    return;
  }
  for (const std::int64_t operand : {of_a, of_b, of_c}) {
    pointers_.to_kernels(num_products_, operand * most_products_);
  }
  void* const* const pointers = pointers_.kernels();
  check(cublasGemmGroupedBatchedEx(
            cublas.handle(), operations_.data(), operations_.data(), m_.data(), n_.data(), k_.data(), ones_.data(),
            pointers + of_a * most_products_, CUDA_R_16BF, leading_a_.data(), pointers + of_b * most_products_,
            CUDA_R_16BF, leading_b_.data(), zeros_.data(), pointers + of_c * most_products_, CUDA_R_16BF,
            leading_c_.data(), as_int(static_cast<std::int64_t>(m_.size())), group_sizes_.data(), CUBLAS_COMPUTE_32F),
        "cublasGemmGroupedBatchedEx");
  ++portable::launches_so_far;
}

std::int64_t GroupedProducts::planned_bytes(std::int64_t most_products) {
  return num_operands * most_products * static_cast<std::int64_t>(sizeof(void*));
}

}  // namespace metro::cuda
