// The router's choice: from logits to the experts of each row and what their results are multiplied by.
#pragma once

#include "base/model_forms.hpp"

#include <cstdint>

namespace metro {

// The top_k experts of each row by `form`, ties to the lower id, in descending weight (sparsemixer: in the order of its
// picks). Groups of experts with the best scores are chosen from, ties to the lower group. logits [num_rows,
// num_experts]; correction [num_experts] or nullptr: added to the scores of sigmoid where experts are chosen, but not
// to their weights. expert_ids, weights [num_rows, top_k]. Sums of weights are taken in k order. With a NaN among the
// logits (chosen_softmax: the chosen ones) the ids are still valid and distinct and the weights NaN. All is memory of
// kernels.
void gate_top_k(const float* logits, std::int64_t num_rows, std::int64_t num_experts, std::int64_t top_k,
                const GateForm& form, const float* correction, std::int32_t* expert_ids, float* weights);

}  // namespace metro
