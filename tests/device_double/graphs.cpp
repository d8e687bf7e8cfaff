// Stream capture and graphs.
#include "double_state.hpp"
#include "streams.hpp"

#include <memory>
#include <utility>

using namespace metro::device_double;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*one thread: all modes are alike*/) {
  return call("cudaStreamBeginCapture", [&] {
    if (const cudaError_t result = check_stream(stream); result != cudaSuccess) {
      return result;
    }
    if (stream->capture != nullptr) {
      return cudaErrorIllegalState;
    }
    stream->capture = std::make_unique<CUgraph_st>();
    stream->capture_is_invalid = false;
    return cudaSuccess;
  });
}

// Ends the capture also when it fails as told.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  const cudaError_t known = check_stream(stream);
  std::unique_ptr<CUgraph_st> graph = known == cudaSuccess ? std::move(stream->capture) : nullptr;
  return call("cudaStreamEndCapture", [&] {
    *pGraph = nullptr;
    if (known != cudaSuccess) {
      return known;
    }
    if (graph == nullptr) {
      return cudaErrorIllegalState;
    }
    if (stream->capture_is_invalid) {
      return cudaErrorStreamCaptureInvalidated;
    }
    *pGraph = graph.release();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  return call("cudaStreamIsCapturing", [&] {
    if (const cudaError_t result = check_stream(stream); result != cudaSuccess) {
      return result;
    }
    *pCaptureStatus = stream->capture == nullptr   ? cudaStreamCaptureStatusNone
                      : stream->capture_is_invalid ? cudaStreamCaptureStatusInvalidated
                                                   : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long /*flags*/) {
  return call("cudaGraphInstantiate", [&] {
    *pGraphExec = new CUgraphExec_st{graph->items};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&] {
    for (const Work& item : graphExec->items) {
      if (const cudaError_t result = enqueue(stream, item); result != cudaSuccess) {
        return result;
      }
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  return call("cudaGraphExecDestroy", [&] {
    delete graphExec;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", [&] {
    delete graph;
    return cudaSuccess;
  });
}
