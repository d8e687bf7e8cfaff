// The queue on a device: one stream that does not wait for any other.
#include "kernels/cuda/device_queue.hpp"

#include "base/error.hpp"
#include "kernels/cuda/cuda_check.hpp"
#include "kernels/portable/execution.hpp"
#include "kernels/portable/launch_count.hpp"
#include "kernels/queue.hpp"
#include "kernels/queue_lifetime.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace metro {

namespace {

using Clock = std::chrono::steady_clock;

// Most waits of a decode step are over by then; a nap would be longer than they are.
constexpr auto spinning_time = std::chrono::milliseconds(1);
constexpr auto nap_time = std::chrono::microseconds(100);

struct Queue {
  int device = 0;
  cudaStream_t stream = nullptr;
  std::function<void(bool)> waiting_check;
  std::thread::id checking_thread;
};

Queue& the_queue() {
  static Queue queue;
  return queue;
}

void copy(void* to, const void* from, std::int64_t num_bytes, cudaMemcpyKind kind) {
  METRO_REQUIRE(num_bytes >= 0, std::to_string(num_bytes) + " bytes");
  if (num_bytes > 0) {
    cuda::check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(num_bytes), kind, cuda::queue()), "cudaMemcpyAsync");
    ++portable::launches_so_far;
  }
}

}  // namespace

void cuda::use_device() {
  METRO_REQUIRE(the_queue().stream != nullptr, "start_queue() was not called");
  thread_local int device_of_thread = 0;
  if (device_of_thread != the_queue().device) {
    check(cudaSetDevice(the_queue().device), "cudaSetDevice");
    device_of_thread = the_queue().device;
  }
}

cudaStream_t cuda::queue() {
  use_device();
  return the_queue().stream;
}

void start_queue(int device) {
  METRO_REQUIRE(the_queue().stream == nullptr, "the queue is already started");
  cuda::check(cudaSetDevice(device), "cudaSetDevice");
  cuda::check(cudaStreamCreateWithFlags(&the_queue().stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  the_queue().device = device;
  portable::start_execution(the_queue().stream);
  // Kokkos fills memory of its own in the default stream, for which ours does not wait.
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void stop_queue() {
  if (the_queue().stream == nullptr) {
    return;
  }
  portable::stop_execution();
  // After a failure of the device this fails as well, and that failure has been reported.
  static_cast<void>(cudaStreamDestroy(std::exchange(the_queue().stream, nullptr)));
  the_queue().waiting_check = nullptr;
}

bool kernels_use_host_memory() {
  return false;
}

void wait_for_kernels() {
  const bool checks = the_queue().waiting_check && the_queue().checking_thread == std::this_thread::get_id();
  cudaError_t state = cudaStreamQuery(cuda::queue());
  for (const auto begin = Clock::now(); state == cudaErrorNotReady; state = cudaStreamQuery(cuda::queue())) {
    if (checks) {
      the_queue().waiting_check(false);
    }
    if (Clock::now() - begin < spinning_time) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap_time);
    }
  }
  cuda::check(state, "work of the device");
  if (checks) {
    the_queue().waiting_check(true);
  }
}

void set_waiting_check(std::function<void(bool)> check) {
  the_queue().waiting_check = std::move(check);
  the_queue().checking_thread = std::this_thread::get_id();
}

void queue_copy_to_kernels(void* to, const void* from_host, std::int64_t num_bytes) {
  copy(to, from_host, num_bytes, cudaMemcpyHostToDevice);
}

void queue_copy_to_host(void* to_host, const void* from, std::int64_t num_bytes) {
  copy(to_host, from, num_bytes, cudaMemcpyDeviceToHost);
}

void queue_copy(void* to, const void* from, std::int64_t num_bytes) {
  copy(to, from, num_bytes, cudaMemcpyDeviceToDevice);
}

void* native_queue() {
  return cuda::queue();
}

std::int64_t num_launches() {
  return portable::launches_so_far;
}

}  // namespace metro
