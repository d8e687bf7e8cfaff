// The choice of experts: a team per row.
#include "kernels/gate.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"

#include <string>

namespace metro {

using namespace portable;

void gate_top_k(const float* logits, std::int64_t num_rows, std::int64_t num_experts, std::int64_t top_k,
                const GateForm& form, const float* correction, std::int32_t* expert_ids, float* weights) {
  METRO_REQUIRE(top_k >= 0 && top_k <= num_experts, std::to_string(top_k) + " of " + std::to_string(num_experts));
  METRO_REQUIRE(form.kind == GateKind::softmax && form.num_groups == 1 && correction == nullptr,
                "a gate of another form");
  const bool normalise = form.normalise;
  const float scale = form.scale;
  require_kernel_memory(
      "gate_top_k", {{"logits", logits}, {"correction", correction}, {"expert_ids", expert_ids}, {"weights", weights}});
  for_each_shaped_team(
      "gate_top_k", num_rows, SumTerms::shape, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = logits + row * num_experts;
        const float top = largest(team, num_experts, [=](std::int64_t i) { return in[i]; });
        const SumTerms terms(team);
        const float sum = sum_in_partials(
            team, terms, num_experts, [=](std::int64_t i) { return exp_of(in[i] - top); },
            [](float value, float partial) { return partial + value; });
        float chosen_sum = 0.0F;
        std::uint64_t code = above_all_codes;
        for (std::int64_t k = 0; k < top_k; ++k) {
          code = best_below(team, in, num_experts, code);
          const std::int32_t expert = id_of_rank_code(code);
          const float weight = exp_of(in[expert] - top) / sum;
          chosen_sum = chosen_sum + weight;
          if (team.rank() == 0) {
            expert_ids[row * top_k + k] = expert;
            weights[row * top_k + k] = weight;
          }
        }
        if (team.rank() == 0) {
          for (std::int64_t k = 0; k < top_k; ++k) {
            float* weight = weights + row * top_k + k;
            *weight = (normalise ? *weight / chosen_sum : *weight) * scale;
          }
        }
      });
}

}  // namespace metro
