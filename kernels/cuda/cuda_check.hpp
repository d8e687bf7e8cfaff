// Results of the CUDA runtime as errors of the program.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace metro::cuda {

// "out of memory (cudaErrorMemoryAllocation, 2)"
std::string text_of(cudaError_t result);

// Throws Error(machine) unless `result` is cudaSuccess: "CALL failed: " and the device's text.
void check(cudaError_t result, const char* call);

}  // namespace metro::cuda
