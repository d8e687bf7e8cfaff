// The segments of a decode step, that is its kernels between two exchanges, as graphs: a segment is enqueued kernel by
// kernel in the first step of a size, recorded in the second and launched as one from then on. Sizes are numbers of
// rows per rank, rounded up so that there are few.
//
// Which segments are recorded is the same on all ranks: they follow from the steps that were, and where one rank's
// device refuses, all of them go on without graphs.
#pragma once

#include "kernels/graph.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace metro {

class StepGraphs {
 public:
  // wanted: the same on all ranks. transport must outlive it.
  StepGraphs(bool wanted, Transport& transport)
      : is_on_(wanted && KernelGraph::is_supported()), transport_(&transport) {}

  // The next segment() is the first of a step with so many rows per rank; the same on all ranks.
  void begin_step(std::int64_t padded_rows);

  // Enqueues what `work` enqueues. The n-th segment of all steps of one size must enqueue the same, with the same
  // arguments: only what is in the memory they point to may differ.
  template <class F>
  void segment(const F& work) {
    if (KernelGraph* const next = next_segment(); next == nullptr) {
      work();
    } else {
      run(*next, work);
    }
  }

  // Collective in a step whose segments were recorded, else local. If a rank's device refused, none of them goes on
  // with graphs.
  void end_step();

  // What graphs were recorded with has changed: begins anew.
  void forget() { steps_.clear(); }

  // After a refusal: whose device, and what it says. The same on all ranks.
  const std::string& why_not() const { return why_not_; }

 private:
  struct Step {
    bool is_warm = false;      // it was run once, so that nothing is left to be set up
    bool is_recorded = false;  // by all ranks
    std::vector<KernelGraph> segments;
  };

  KernelGraph* next_segment();
  template <class F>
  void run(KernelGraph& graph, const F& work) {
    if (graph.is_recorded()) {
      graph.launch();
    } else if (!record_and_launch(graph, work)) {
      work();
    }
  }
  bool record_and_launch(KernelGraph& graph, const std::function<void()>& work);

  bool is_on_;
  Transport* transport_;
  std::map<std::int64_t, Step> steps_;  // by padded rows
  Step* step_ = nullptr;                // the one under way
  std::size_t num_done_ = 0;            // of its segments
  std::string why_not_;
};

}  // namespace metro
