// A test double of the CUDA runtime over memory of the host. What is enqueued runs late: only when something waits for
// it or asks (a query runs one item at most), in order, on the thread that waits. Device memory is a range of addresses
// that nobody may touch except while queued work or a synchronous copy runs: host code that reads or writes it dies of
// SIGSEGV, host memory given to an asynchronous copy must be pinned, and new memory is filled with 0xff. For one thread
// at a time.
//
// A whole program is set up by the environment: METRO_DOUBLE_DEVICES (number), METRO_DOUBLE_DRIVER (13000 is CUDA 13.0,
// 0 none), METRO_DOUBLE_MEMORY_MB, METRO_DOUBLE_FAIL ("cudaMalloc:2:3": the 3rd call of cudaMalloc gives error 2;
// "item": the 3rd item), METRO_DOUBLE_HANG (about so many items run, and none ever ends after that),
// METRO_DOUBLE_COUNTS (a file that gets the number of calls of each function when the program ends). As with CUDA,
// CUDA_VISIBLE_DEVICES hides and renumbers devices.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

namespace metro::device_double {

// What an item of the queue says when it was run; not_yet: run it again later, before anything behind it.
enum class Progress { done, not_yet };
using Work = std::function<Progress()>;

// Puts an item behind what is in the stream, or into the graph that it is capturing: then every launch of the graph
// runs a copy of `work` as it is now. An item that throws is a failure of the device, which all later calls return.
// Items do not call functions of the runtime.
cudaError_t enqueue(cudaStream_t stream, Work work);

// While one lives, device memory can be read and written: for items, as briefly as possible.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// Whether num_bytes from `pointer` on lie in one piece of device memory, or of pinned memory of the host.
bool is_device_memory(const void* pointer, std::int64_t num_bytes);
bool is_pinned_memory(const void* pointer, std::int64_t num_bytes);

// For tests. The nth call of `function` from now on gives `error` and does nothing.
void fail_call(const std::string& function, cudaError_t error, std::int64_t nth = 1);
// The nth item that is run from now on fails: the calls that wait for it, and all later ones, return `error`.
void fail_item(cudaError_t error, std::int64_t nth = 1);
void set_num_devices(int num_devices);
void set_driver_version(int version);
// Of the device; less than is in use makes allocations fail.
void set_memory_bytes(std::int64_t num_bytes);

// Since the start or the last reset().
std::int64_t num_calls(const std::string& function);
// Of a function of a library on top, such as NCCL's double.
void count_call(const std::string& function);
// Waiting in all streams.
std::int64_t num_queued();

// Forgets failures, counts and settings; memory, streams and what is in them stay.
void reset();

}  // namespace metro::device_double
