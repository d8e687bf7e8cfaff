#include "kernels/cuda/cuda_check.hpp"

#include "base/error.hpp"

namespace metro::cuda {

std::string text_of(cudaError_t result) {
  return std::string(cudaGetErrorString(result)) + " (" + cudaGetErrorName(result) + ", " +
         std::to_string(static_cast<int>(result)) + ")";
}

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // or a later check of the last error would report this one again
    throw Error(ExitCode::machine, std::string(call) + " failed: " + text_of(result));
  }
}

}  // namespace metro::cuda
