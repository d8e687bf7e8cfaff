// Forms in which model families differ: named once, for what a model is (model/model_spec.hpp) and for the kernels.
#pragma once

#include <cstdint>

namespace metro {

// Which two elements of a head RoPE rotates together: (i, i + dims / 2), or (2i, 2i + 1).
enum class RopePairs : std::int32_t { halves, neighbours };

// How router logits become expert ids and weights.
//   softmax         softmax over all experts, then the top_k
//   sigmoid         sigmoid of each logit, then the top_k
//   chosen_softmax  the top_k logits, then softmax over those
//   sparsemixer     two picks, each with a softmax over the experts that are close enough to the best (Phi-3.5-MoE)
enum class GateKind : std::int32_t { softmax, sigmoid, chosen_softmax, sparsemixer };

struct GateForm {
  GateKind kind = GateKind::softmax;
  bool normalise = true;             // softmax, sigmoid: the top_k weights are divided by their sum
  float scale = 1.0F;                // every weight is multiplied by it, last
  std::int64_t num_groups = 1;       // of experts, side by side; only those of the best groups are chosen from
  std::int64_t num_kept_groups = 1;  // number of those
  std::int64_t best_of_group = 1;    // a group's score is the sum of so many of its best
  float jitter = 0.0F;               // sparsemixer: an expert is dropped when it lies more than 2 * jitter below
};

// What joins the two halves of an expert's first layer.
//   silu            silu(gate) * up
//   clamped_swiglu  with g = min(gate, limit), u = up within -limit .. limit:  (u + 1) * g * sigmoid(1.702 g)
enum class ActivationKind : std::int32_t { silu, clamped_swiglu };

struct Activation {
  ActivationKind kind = ActivationKind::silu;
  float limit = 0.0F;

  bool operator==(const Activation&) const = default;
};

}  // namespace metro
