// Recorded kernels on a device: what a stream captures becomes an executable graph.
#include "base/error.hpp"
#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/device_queue.hpp"
#include "kernels/graph.hpp"
#include "kernels/portable/launch_count.hpp"

#include <cstdint>
#include <utility>

namespace metro {

namespace {

// The graph of a finished capture; destroyed when it has been made executable, or when that failed.
class CapturedGraph {
 public:
  explicit CapturedGraph(cudaGraph_t graph) : graph_(graph) {}
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() {
    if (graph_ != nullptr) {
      static_cast<void>(cudaGraphDestroy(graph_));
    }
  }
  cudaGraphExec_t executable() const {
    cudaGraphExec_t result = nullptr;
    cuda::check(cudaGraphInstantiate(&result, graph_, 0), "cudaGraphInstantiate");
    return result;
  }

 private:
  cudaGraph_t graph_;
};

// Ends the capture whatever happened in it, so that the queue can be used again.
CapturedGraph captured(const std::function<void()>& work) {
  const cudaStream_t queue = cuda::queue();
  cudaGraph_t graph = nullptr;
  cuda::check(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    work();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(queue, &graph));
    const CapturedGraph unfinished(graph);
    static_cast<void>(cudaGetLastError());
    throw;
  }
  cuda::check(cudaStreamEndCapture(queue, &graph), "recording of kernels (cudaStreamEndCapture)");
  return CapturedGraph(graph);
}

}  // namespace

struct KernelGraph::Native {
  cudaGraphExec_t executable;
  std::int64_t num_launches;

  Native(cudaGraphExec_t graph, std::int64_t launches) : executable(graph), num_launches(launches) {}
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;
  ~Native() { static_cast<void>(cudaGraphExecDestroy(executable)); }
};

KernelGraph::KernelGraph() = default;
KernelGraph::~KernelGraph() = default;
KernelGraph::KernelGraph(KernelGraph&& other) noexcept = default;
KernelGraph& KernelGraph::operator=(KernelGraph&& other) noexcept = default;

bool KernelGraph::is_supported() {
  return true;
}

void KernelGraph::record(const std::function<void()>& work) {
  native_.reset();
  const std::int64_t launches_before = portable::launches_so_far;
  try {
    const CapturedGraph graph = captured(work);
    const std::int64_t num_recorded = portable::launches_so_far - launches_before;
    native_ = std::make_unique<Native>(graph.executable(), num_recorded);
  } catch (...) {
    portable::launches_so_far = launches_before;
    throw;
  }
  portable::launches_so_far = launches_before;  // nothing has run yet
}

void KernelGraph::launch() const {
  METRO_REQUIRE(is_recorded(), "no graph was recorded");
  cuda::check(cudaGraphLaunch(native_->executable, cuda::queue()), "cudaGraphLaunch");
  portable::launches_so_far += native_->num_launches;
}

}  // namespace metro
