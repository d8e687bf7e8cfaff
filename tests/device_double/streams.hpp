// Streams, and the graphs that are captured from them.
#pragma once

#include "device_double/device_double.hpp"

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

struct CUgraph_st {
  std::vector<metro::device_double::Work> items;
};

struct CUgraphExec_st {
  std::vector<metro::device_double::Work> items;
};

struct CUstream_st {
  int device = 0;  // as the process numbers them
  std::deque<metro::device_double::Work> queue;
  std::unique_ptr<CUgraph_st> capture;  // while one is in progress
  bool capture_is_invalid = false;
};

namespace metro::device_double {

// An event's last recording. Kept by its item too: an event may be destroyed first.
struct Recording {
  bool reached = false;
  std::chrono::steady_clock::time_point time;
};

// cudaSuccess, or cudaErrorInvalidResourceHandle: also where the calling thread has another device, which CUDA refuses
// for kernels only.
cudaError_t check_stream(cudaStream_t stream);
// If the stream is capturing: ends that as invalid. cudaSuccess if it is not.
cudaError_t refuse_in_capture_of(cudaStream_t stream);
// Runs the first item, if there is one; cudaErrorNotReady if there is still one afterwards.
cudaError_t run_one(cudaStream_t stream);
// Until the stream is empty.
cudaError_t run_all(cudaStream_t stream);

}  // namespace metro::device_double

struct CUevent_st {
  std::shared_ptr<metro::device_double::Recording> recording;
  cudaStream_t stream = nullptr;
  bool has_time = true;
};
