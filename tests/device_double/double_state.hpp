// What the files of the test double share.
#pragma once

#include "device_double/device_double.hpp"

#include <cstdint>

namespace metro::device_double {

struct Settings {
  int num_devices = 4;
  int driver_version = CUDART_VERSION;
  std::int64_t memory_bytes = std::int64_t{512} << 20;
};
const Settings& settings();

// Of the calling thread, 0 at first.
int& current_device();

// Counts a call. The error that it has to return at once: an injected one, none of the right devices or drivers, or
// what the device has failed with before.
cudaError_t refusal_of(const char* function);
// Keeps `result` for cudaGetLastError().
cudaError_t remembered(cudaError_t result);
// From now on every call fails with it.
void break_device(cudaError_t error);
// Whether the device has come to an item that it never ends.
bool next_item_hangs();
// The error that the next item is to fail with.
cudaError_t failure_of_next_item();

// Every function of the runtime but those that only ask for versions and errors.
template <class F>
cudaError_t call(const char* function, const F& work) {
  const cudaError_t refusal = refusal_of(function);
  return remembered(refusal != cudaSuccess ? refusal : work());
}

// One line on stderr, "device double: WHAT"; returns `error`.
cudaError_t complain(cudaError_t error, const std::string& what);

// Of calls that no capture allows: ends those in progress as invalid. cudaSuccess if there is none.
cudaError_t refuse_in_capture();
// Runs everything in all streams.
cudaError_t run_all_streams();

}  // namespace metro::device_double
