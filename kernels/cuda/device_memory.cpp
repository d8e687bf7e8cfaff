// Memory of the device, pinned memory of the host, and copies that wait.
#include "base/error.hpp"
#include "kernels/buffer.hpp"
#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/device_queue.hpp"
#include "kernels/queue.hpp"

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

namespace metro {

namespace {

void check_allocation(cudaError_t result, std::int64_t num_bytes, const char* kind, const std::string& label) {
  if (result != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw Error(ExitCode::machine, "cannot allocate " + std::to_string(num_bytes) + " bytes of " + kind + " for " +
                                       label + ": " + cuda::text_of(result));
  }
}

// Ordinary memory takes a detour during which the call may already have returned: hence the second wait.
void copy_and_wait(void* to, const void* from, std::int64_t num_bytes, cudaMemcpyKind kind) {
  wait_for_kernels();
  if (num_bytes > 0) {
    cuda::check(cudaMemcpy(to, from, static_cast<std::size_t>(num_bytes), kind), "cudaMemcpy");
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
}

}  // namespace

RawBuffer::RawBuffer(const std::string& label, std::int64_t num_bytes, FirstContent content) : num_bytes_(num_bytes) {
  METRO_REQUIRE(num_bytes >= 0, label + ": " + std::to_string(num_bytes) + " bytes");
  const cudaStream_t queue = cuda::queue();
  if (num_bytes == 0) {
    return;
  }
  const auto size = static_cast<std::size_t>(num_bytes);
  void* memory = nullptr;
  check_allocation(cudaMalloc(&memory, size), num_bytes, "device memory", label);
  data_ = static_cast<std::byte*>(memory);
  if (content == FirstContent::zeros) {
    const cudaError_t result = cudaMemsetAsync(memory, 0, size, queue);
    if (result != cudaSuccess) {
      static_cast<void>(cudaFree(memory));  // no destructor follows
      cuda::check(result, "cudaMemsetAsync");
    }
  }
}

// In destructors nothing is checked: what fails there has failed before, and the next wait reports it.
RawBuffer::~RawBuffer() {
  if (data_ != nullptr) {
    static_cast<void>(cudaFree(data_));
  }
}

PinnedBuffer::PinnedBuffer(const std::string& label, std::int64_t num_bytes) {
  METRO_REQUIRE(num_bytes >= 0, label + ": " + std::to_string(num_bytes) + " bytes");
  if (num_bytes == 0) {
    return;
  }
  const auto size = static_cast<std::size_t>(num_bytes);
  cuda::use_device();
  void* memory = nullptr;
  check_allocation(cudaMallocHost(&memory, size), num_bytes, "pinned memory of the host", label);
  std::memset(memory, 0, size);
  data_ = static_cast<std::byte*>(memory);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) {
    static_cast<void>(cudaFreeHost(data_));
  }
}

std::optional<std::int64_t> kernel_memory_room() {
  std::size_t free_bytes = 0;
  std::size_t all_bytes = 0;
  cuda::check(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free_bytes);
}

void copy_bytes_from_host(std::byte* to, const std::byte* from_host, std::int64_t num_bytes) {
  copy_and_wait(to, from_host, num_bytes, cudaMemcpyHostToDevice);
}

void copy_bytes_to_host(std::byte* to_host, const std::byte* from, std::int64_t num_bytes) {
  copy_and_wait(to_host, from, num_bytes, cudaMemcpyDeviceToHost);
}

}  // namespace metro
