// Streams and events: when queued work runs.
#include "streams.hpp"

#include "double_state.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace metro::device_double {

namespace {

std::vector<cudaStream_t>& streams() {
  static auto& all = *new std::vector<cudaStream_t>;
  return all;
}

// True when the item is done with.
bool run_item(const Work& item) {
  if (next_item_hangs()) {
    return false;
  }
  if (const cudaError_t failure = failure_of_next_item(); failure != cudaSuccess) {
    break_device(failure);
    return true;
  }
  try {
    return item() == Progress::done;
  } catch (const std::exception& failure) {
    break_device(complain(cudaErrorLaunchFailure, std::string("queued work threw: ") + failure.what()));
    return true;
  }
}

cudaError_t state_of_device() {
  return refusal_of(" state");
}

}  // namespace

cudaError_t check_stream(cudaStream_t stream) {
  if (std::find(streams().begin(), streams().end(), stream) == streams().end()) {
    return complain(cudaErrorInvalidResourceHandle, "no such stream");
  }
  return stream->device == current_device()
             ? cudaSuccess
             : complain(cudaErrorInvalidResourceHandle, "a stream of device " + std::to_string(stream->device) +
                                                            " on a thread of device " +
                                                            std::to_string(current_device()));
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  if (const cudaError_t result = check_stream(stream); result != cudaSuccess) {
    return result;
  }
  if (stream->capture == nullptr) {
    stream->queue.push_back(std::move(work));
    return cudaSuccess;
  }
  if (stream->capture_is_invalid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  stream->capture->items.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t refuse_in_capture_of(cudaStream_t stream) {
  if (stream->capture == nullptr) {
    return cudaSuccess;
  }
  stream->capture_is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_in_capture() {
  cudaError_t result = cudaSuccess;
  for (const cudaStream_t stream : streams()) {
    const cudaError_t refusal = refuse_in_capture_of(stream);
    result = refusal != cudaSuccess ? refusal : result;
  }
  return result;
}

cudaError_t run_one(cudaStream_t stream) {
  if (!stream->queue.empty() && run_item(stream->queue.front())) {
    stream->queue.pop_front();
  }
  if (const cudaError_t broken = state_of_device(); broken != cudaSuccess) {
    stream->queue.clear();  // a broken device runs nothing more
    return broken;
  }
  return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t run_all(cudaStream_t stream) {
  cudaError_t result = run_one(stream);
  while (result == cudaErrorNotReady) {
    std::this_thread::yield();  // an item may wait for another process
    result = run_one(stream);
  }
  return result;
}

cudaError_t run_all_streams() {
  for (const cudaStream_t stream : streams()) {
    if (const cudaError_t result = run_all(stream); result != cudaSuccess) {
      return result;
    }
  }
  return cudaSuccess;
}

std::int64_t num_queued() {
  std::int64_t number = 0;
  for (const cudaStream_t stream : streams()) {
    number += static_cast<std::int64_t>(stream->queue.size());
  }
  return number;
}

}  // namespace metro::device_double

using namespace metro::device_double;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  return call("cudaStreamCreateWithFlags", [&] {
    if (flags != cudaStreamNonBlocking) {
      return complain(cudaErrorInvalidValue, "only non-blocking streams are known");
    }
    streams().push_back(*pStream = new CUstream_st);
    (*pStream)->device = current_device();
    return cudaSuccess;
  });
}

// What is queued still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", [&] {
    if (const cudaError_t result = check_stream(stream); result != cudaSuccess) {
      return result;
    }
    const cudaError_t result = run_all(stream);
    std::erase(streams(), stream);
    delete stream;
    return result;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", [&] {
    if (const cudaError_t result = check_stream(stream); result != cudaSuccess) {
      return result;
    }
    const cudaError_t refusal = refuse_in_capture_of(stream);
    return refusal != cudaSuccess ? refusal : run_one(stream);
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", [&] {
    if (const cudaError_t result = check_stream(stream); result != cudaSuccess) {
      return result;
    }
    const cudaError_t refusal = refuse_in_capture_of(stream);
    return refusal != cudaSuccess ? refusal : run_all(stream);
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [] {
    const cudaError_t refusal = refuse_in_capture();
    return refusal != cudaSuccess ? refusal : run_all_streams();
  });
}

// Host functions see the memory of the host only.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return call("cudaLaunchHostFunc", [&] {
    return enqueue(stream, [fn, userData] {
      fn(userData);
      return Progress::done;
    });
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return call("cudaEventCreateWithFlags", [&] {
    *event = new CUevent_st;
    (*event)->has_time = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", [&] {
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [&] {
    auto recording = std::make_shared<Recording>();
    const cudaError_t result = enqueue(stream, [recording] {
      recording->time = std::chrono::steady_clock::now();
      recording->reached = true;
      return Progress::done;
    });
    if (result == cudaSuccess) {
      event->recording = std::move(recording);
      event->stream = stream;
    }
    return result;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&] {
    if (const cudaError_t refusal = refuse_in_capture(); refusal != cudaSuccess) {
      return refusal;
    }
    if (event->recording == nullptr || event->recording->reached) {
      return cudaSuccess;
    }
    const cudaError_t result = run_one(event->stream);
    if (result != cudaSuccess && result != cudaErrorNotReady) {
      return result;
    }
    return event->recording->reached ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [&] {
    if (const cudaError_t refusal = refuse_in_capture(); refusal != cudaSuccess) {
      return refusal;
    }
    while (event->recording != nullptr && !event->recording->reached) {
      const cudaError_t result = run_one(event->stream);
      if (result != cudaSuccess && result != cudaErrorNotReady) {
        return result;
      }
      std::this_thread::yield();
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call("cudaEventElapsedTime", [&] {
    if (!start->has_time || !end->has_time || start->recording == nullptr || end->recording == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!start->recording->reached || !end->recording->reached) {
      return cudaErrorNotReady;
    }
    *ms = std::chrono::duration<float, std::milli>(end->recording->time - start->recording->time).count();
    return cudaSuccess;
  });
}
