// Which experts a row goes to: router logits, then the top-k with their weights.
#pragma once

#include "kernels/buffer.hpp"
#include "kernels/packed_matrix.hpp"
#include "model/model_spec.hpp"

#include <cstdint>

namespace metro {

// Memory of kernels.
struct RouterWeights {
  PackedMatrix weights;               // [E, H]
  const float* correction = nullptr;  // [E] of the choice (gate_top_k); nullptr: there is none
};

class Gate {
 public:
  // `spec` must outlive it. max_rows: of one call.
  Gate(const ModelSpec& spec, std::int64_t max_rows);

  // rows [num_rows, H] normed, -> expert_ids, expert_weights [num_rows, top_k]. A row's
  // result depends on no other row. All is memory of kernels. Local.
  void choose(const float* rows, std::int64_t num_rows, const RouterWeights& router, std::int32_t* expert_ids,
              float* expert_weights);

  std::int64_t num_bytes() const { return logits_.num_bytes(); }
  static std::int64_t planned_bytes(const ModelSpec& spec, std::int64_t max_rows);

 private:
  const ModelSpec* spec_;
  Buffer<float> logits_;  // [max_rows, E]
};

}  // namespace metro
