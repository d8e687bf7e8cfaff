#include "decoder/gate.hpp"

#include "base/error.hpp"
#include "kernels/gate.hpp"
#include "kernels/linear.hpp"

namespace metro {

Gate::Gate(const ModelSpec& spec, std::int64_t max_rows)
    : spec_(&spec), logits_("router logits", max_rows * spec.moe.num_experts) {}

std::int64_t Gate::planned_bytes(const ModelSpec& spec, std::int64_t max_rows) {
  return max_rows * spec.moe.num_experts * static_cast<std::int64_t>(sizeof(float));
}

void Gate::choose(const float* rows, std::int64_t num_rows, const RouterWeights& router, std::int32_t* expert_ids,
                  float* expert_weights) {
  const MoeSpec& moe = spec_->moe;
  METRO_REQUIRE(num_rows * moe.num_experts <= logits_.size(), "more rows than the gate has room for");
  linear(rows, num_rows, router.weights, logits_.data());
  gate_top_k(logits_.data(), num_rows, moe.num_experts, moe.top_k, moe.gate, router.correction, expert_ids,
             expert_weights);
}

}  // namespace metro
