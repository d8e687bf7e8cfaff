// The choice of experts: a team per row.
#include "kernels/gate.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"

#include <string>

namespace metro {

using namespace portable;

namespace {

// The arguments of gate_top_k() that every kind of gate has.
struct GateRows {
  const float* logits;
  std::int64_t num_rows;
  std::int64_t num_experts;
  std::int64_t top_k;
  std::int32_t* expert_ids;
  float* weights;
};

void softmax_gate(const GateRows& rows, bool normalise, float scale) {
  const GateRows of = rows;
  for_each_shaped_team(
      "softmax_gate", of.num_rows, SumTerms::shape, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = of.logits + row * of.num_experts;
        const float top = largest(team, of.num_experts, [=](std::int64_t i) { return in[i]; });
        const SumTerms terms(team);
        const float sum = sum_in_partials(
            team, terms, of.num_experts, [=](std::int64_t i) { return exp_of(in[i] - top); },
            [](float value, float partial) { return partial + value; });
        float chosen_sum = 0.0F;
        std::uint64_t code = above_all_codes;
        for (std::int64_t k = 0; k < of.top_k; ++k) {
          code = best_below(team, in, of.num_experts, code);
          const std::int32_t expert = id_of_rank_code(code);
          const float weight = exp_of(in[expert] - top) / sum;
          chosen_sum = chosen_sum + weight;
          if (team.rank() == 0) {
            of.expert_ids[row * of.top_k + k] = expert;
            of.weights[row * of.top_k + k] = weight;
          }
        }
        if (team.rank() == 0) {
          for (std::int64_t k = 0; k < of.top_k; ++k) {
            float* weight = of.weights + row * of.top_k + k;
            *weight = (normalise ? *weight / chosen_sum : *weight) * scale;
          }
        }
      });
}

// Whether sparsemixer drops an expert: its logit is too far below the best one. NaN stays, so that weights become NaN.
KOKKOS_FORCEINLINE_FUNCTION bool is_dropped(float logit, float best, float limit) {
  const float size = logit < 0.0F ? -logit : logit;
  return (best - logit) / (size < best ? best : size) > limit;
}

// Two picks, each the best expert that is left, its weight by a softmax over those that are not dropped. The first pick
// takes no part in the second softmax.
void sparsemixer_gate(const GateRows& rows, float jitter) {
  METRO_REQUIRE(rows.top_k == 2, std::to_string(rows.top_k) + " picks of sparsemixer");
  const GateRows of = rows;
  const float limit = 2.0F * jitter;
  for_each_shaped_team(
      "sparsemixer_gate", of.num_rows, SumTerms::shape, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = of.logits + row * of.num_experts;
        const SumTerms terms(team);
        std::uint64_t code = above_all_codes;
        std::int64_t picked_before = -1;
        for (std::int64_t k = 0; k < 2; ++k) {
          code = best_below(team, in, of.num_experts, code);
          const std::int32_t expert = id_of_rank_code(code);
          const float best = in[expert];
          const auto share = [=](std::int64_t i) {
            return i == picked_before || is_dropped(in[i], best, limit) ? 0.0F : exp_of(in[i] - best);
          };
          const float sum = sum_in_partials(team, terms, of.num_experts, share,
                                            [](float value, float partial) { return partial + value; });
          if (team.rank() == 0) {
            of.expert_ids[row * 2 + k] = expert;
            of.weights[row * 2 + k] = exp_of(best - best) / sum;
          }
          picked_before = expert;
        }
      });
}

}  // namespace

void gate_top_k(const float* logits, std::int64_t num_rows, std::int64_t num_experts, std::int64_t top_k,
                const GateForm& form, const float* correction, std::int32_t* expert_ids, float* weights) {
  METRO_REQUIRE(top_k >= 0 && top_k <= num_experts, std::to_string(top_k) + " of " + std::to_string(num_experts));
  METRO_REQUIRE(form.num_groups == 1 && correction == nullptr, "a gate of another form");
  require_kernel_memory(
      "gate_top_k", {{"logits", logits}, {"correction", correction}, {"expert_ids", expert_ids}, {"weights", weights}});
  const GateRows rows{logits, num_rows, num_experts, top_k, expert_ids, weights};
  switch (form.kind) {
    case GateKind::softmax:
      return softmax_gate(rows, form.normalise, form.scale);
    case GateKind::sparsemixer:
      return sparsemixer_gate(rows, form.jitter);
    default:
      METRO_REQUIRE(false, "a gate of another form");
  }
}

}  // namespace metro
