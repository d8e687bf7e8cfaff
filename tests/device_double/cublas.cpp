// cuBLAS's test double: the grouped matrix product, by plain loops, when the stream gets there. It insists on what the
// documentation says of arguments: which arrays are of the host and which of the device, sizes, alignment.
#include "double_state.hpp"
#include "streams.hpp"

#include "kernels/portable/bf16_rounding.hpp"

#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
};

namespace metro::device_double {

namespace {

constexpr std::int64_t alignment = 16;
constexpr auto element_bytes = static_cast<std::int64_t>(sizeof(std::uint16_t));

cublasStatus_t status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorInvalidValue:
      return CUBLAS_STATUS_INVALID_VALUE;
    case cudaErrorNotSupported:
      return CUBLAS_STATUS_NOT_SUPPORTED;
    case cudaErrorInitializationError:
      return CUBLAS_STATUS_NOT_INITIALIZED;
    default:
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

// Every function that may fail. What went wrong in cuBLAS is no error of the runtime.
template <class F>
cublasStatus_t cublas_call(const char* function, const F& work) {
  const cudaError_t refusal = refusal_of(function);
  return status_of(refusal != cudaSuccess ? refusal : work());
}

cudaError_t refuse(const std::string& what) {
  return complain(cudaErrorInvalidValue, "cublasGemmGroupedBatchedEx: " + what);
}

// A group as its call described it.
struct Group {
  std::int64_t m, n, k, lda, ldb, ldc;
  std::int64_t first, end;  // of its products
};

// Column-major; in an array of the device.
struct Matrix {
  const char* name;
  std::int64_t rows, columns, leading;

  void require(const void* begin) const {
    const std::int64_t elements = rows == 0 || columns == 0 ? 0 : (columns - 1) * leading + rows;
    if (elements > 0 && !is_device_memory(begin, elements * element_bytes)) {
      throw std::runtime_error(std::string(name) + " of a grouped product is not memory of the device");
    }
    if (reinterpret_cast<std::uintptr_t>(begin) % alignment != 0) {
      throw std::runtime_error(std::string(name) + " of a grouped product is not aligned to 16 bytes");
    }
  }
};

void multiply(const Group& group, const void* a, const void* b, void* c) {
  Matrix{"A", group.m, group.k, group.lda}.require(a);
  Matrix{"B", group.k, group.n, group.ldb}.require(b);
  Matrix{"C", group.m, group.n, group.ldc}.require(c);
  const auto* const of_a = static_cast<const std::uint16_t*>(a);
  const auto* const of_b = static_cast<const std::uint16_t*>(b);
  auto* const of_c = static_cast<std::uint16_t*>(c);
  std::vector<float> sums(static_cast<std::size_t>(group.m));
  for (std::int64_t j = 0; j < group.n; ++j) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (std::int64_t l = 0; l < group.k; ++l) {
      const float factor = portable::widened(of_b[l + j * group.ldb]);
      for (std::int64_t i = 0; i < group.m; ++i) {
        sums[static_cast<std::size_t>(i)] += portable::widened(of_a[i + l * group.lda]) * factor;
      }
    }
    for (std::int64_t i = 0; i < group.m; ++i) {
      of_c[i + j * group.ldc] = portable::rounded_to_bf16(sums[static_cast<std::size_t>(i)]);
    }
  }
}

bool is_legal(const Group& group) {
  return group.m >= 1 && group.n >= 1 && group.k >= 1 && group.lda >= group.m && group.ldb >= group.k &&
         group.ldc >= group.m && group.end > group.first;
}

}  // namespace

}  // namespace metro::device_double

using namespace metro::device_double;

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
  }
  return "unknown";
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  return cublas_call("cublasCreate", [&] {
    *handle = new cublasContext;
    return cudaSuccess;
  });
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  return cublas_call("cublasDestroy", [&] {
    delete handle;
    return cudaSuccess;
  });
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t streamId) {
  return cublas_call("cublasSetStream", [&] {
    handle->stream = streamId;
    handle->workspace = nullptr;
    return check_stream(streamId);
  });
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t workspaceSizeInBytes) {
  return cublas_call("cublasSetWorkspace", [&] {
    if (!is_device_memory(workspace, static_cast<std::int64_t>(workspaceSizeInBytes))) {
      return complain(cudaErrorInvalidValue, "cublasSetWorkspace: not memory of the device");
    }
    handle->workspace = workspace;
    return cudaSuccess;
  });
}

cublasStatus_t cublasGemmGroupedBatchedEx(cublasHandle_t handle, const cublasOperation_t transa_array[],
                                          const cublasOperation_t transb_array[], const int m_array[],
                                          const int n_array[], const int k_array[], const void* alpha_array,
                                          const void* const Aarray[], cudaDataType_t Atype, const int lda_array[],
                                          const void* const Barray[], cudaDataType_t Btype, const int ldb_array[],
                                          const void* beta_array, void* const Carray[], cudaDataType_t Ctype,
                                          const int ldc_array[], int group_count, const int group_size[],
                                          cublasComputeType_t computeType) {
  return cublas_call("cublasGemmGroupedBatchedEx", [&] {
    if (Atype != CUDA_R_16BF || Btype != CUDA_R_16BF || Ctype != CUDA_R_16BF || computeType != CUBLAS_COMPUTE_32F) {
      return complain(cudaErrorNotSupported, "cublasGemmGroupedBatchedEx: types other than bf16 with sums in fp32");
    }
    if (handle->workspace == nullptr) {
      return refuse("no workspace of the caller's, so that it would allocate one");
    }
    for (const void* const array :
         {static_cast<const void*>(transa_array), static_cast<const void*>(transb_array),
          static_cast<const void*>(m_array), static_cast<const void*>(n_array), static_cast<const void*>(k_array),
          alpha_array, beta_array, static_cast<const void*>(lda_array), static_cast<const void*>(ldb_array),
          static_cast<const void*>(ldc_array), static_cast<const void*>(group_size)}) {
      if (array == nullptr || is_device_memory(array, 0)) {
        return refuse("shapes, sizes and factors must be memory of the host");
      }
    }
    std::vector<Group> groups;
    std::int64_t num_products = 0;
    for (int g = 0; g < group_count; ++g) {
      if (transa_array[g] != CUBLAS_OP_N || transb_array[g] != CUBLAS_OP_N ||
          static_cast<const float*>(alpha_array)[g] != 1.0F || static_cast<const float*>(beta_array)[g] != 0.0F) {
        return complain(cudaErrorNotSupported, "cublasGemmGroupedBatchedEx: the double knows C = A B only");
      }
      groups.push_back({m_array[g], n_array[g], k_array[g], lda_array[g], ldb_array[g], ldc_array[g], num_products,
                        num_products + group_size[g]});
      num_products = groups.back().end;
      if (!is_legal(groups.back())) {
        return refuse("group " + std::to_string(g) + " has sizes that do not fit together");
      }
    }
    const std::int64_t array_bytes = num_products * static_cast<std::int64_t>(sizeof(void*));
    if (!is_device_memory(Aarray, array_bytes) || !is_device_memory(Barray, array_bytes) ||
        !is_device_memory(Carray, array_bytes)) {
      return refuse("arrays of matrices must be memory of the device");
    }
    return enqueue(handle->stream, [groups, Aarray, Barray, Carray] {
      const DeviceAccess access;
      for (const Group& group : groups) {
        for (std::int64_t i = group.first; i < group.end; ++i) {
          multiply(group, Aarray[i], Barray[i], Carray[i]);
        }
      }
      return Progress::done;
    });
  });
}
