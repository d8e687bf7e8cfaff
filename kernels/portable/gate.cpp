// The choice of experts: a team per row.
#include "kernels/gate.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"

#include <cstdint>
#include <limits>
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

// All experts are chosen from: so it is in most models, and no expert is asked for its group.
struct AllExperts {
  std::int64_t num_experts;

  template <class F>
  KOKKOS_INLINE_FUNCTION std::uint64_t kept(const Team& /*team*/, const F& /*value*/) const {
    return 0;
  }
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION std::uint64_t best_kept(const Team& team, std::uint64_t /*groups*/, std::uint64_t limit,
                                                      const F& value) const {
    return best_below(team, num_experts, limit, value);
  }
};

// Groups of experts side by side, of which the best are chosen from.
struct ExpertGroups {
  static constexpr std::int64_t most_groups = 64;
  std::int64_t num_groups;
  std::int64_t num_kept;
  std::int64_t size;           // experts of a group
  std::int64_t best_of_group;  // 1 or 2

  // The sum of a group's best; value(i) is what expert i is chosen by. A NaN is passed over.
  template <class F>
  KOKKOS_INLINE_FUNCTION float score(std::int64_t group, const F& value) const {
    float best = -std::numeric_limits<float>::infinity();
    float second = best;
    for (std::int64_t i = group * size; i < (group + 1) * size; ++i) {
      const float candidate = value(i);
      if (candidate > best) {
        second = best;
        best = candidate;
      } else if (candidate > second) {
        second = candidate;
      }
    }
    return best_of_group == 1 ? best : best + second;
  }

  // A bit for every group that is kept. Called by all threads of a team.
  template <class F>
  KOKKOS_INLINE_FUNCTION std::uint64_t kept(const Team& team, const F& value) const {
    std::uint64_t groups = 0;
    std::uint64_t code = above_all_codes;
    for (std::int64_t i = 0; i < num_kept; ++i) {
      code = best_below(team, num_groups, code, [&](std::int64_t group) { return score(group, value); });
      groups |= std::uint64_t{1} << id_of_rank_code(code);
    }
    return groups;
  }

  // best_below() of the experts in these groups.
  template <class F>
  KOKKOS_FORCEINLINE_FUNCTION std::uint64_t best_kept(const Team& team, std::uint64_t groups, std::uint64_t limit,
                                                      const F& value) const {
    return best_below(team, num_groups * size, limit, [&](std::int64_t i) {
      return ((groups >> (i / size)) & 1U) != 0 ? value(i) : -std::numeric_limits<float>::infinity();
    });
  }
};

ExpertGroups groups_of(const GateForm& form, const GateRows& rows) {
  METRO_REQUIRE(form.num_groups >= 1 && form.num_groups <= ExpertGroups::most_groups &&
                    rows.num_experts % form.num_groups == 0 && form.num_kept_groups >= 1 &&
                    form.num_kept_groups <= form.num_groups,
                "groups of experts");
  const ExpertGroups groups{form.num_groups, form.num_kept_groups, rows.num_experts / form.num_groups,
                            form.best_of_group};
  METRO_REQUIRE(groups.num_kept * groups.size >= rows.top_k && (form.best_of_group == 1 || form.best_of_group == 2),
                "experts of groups");
  return groups;
}

// Calls launch(groups) with what `form` chooses from.
template <class F>
void with_groups_of(const GateForm& form, const GateRows& rows, const F& launch) {
  const ExpertGroups groups = groups_of(form, rows);
  if (groups.num_kept == groups.num_groups) {
    launch(AllExperts{rows.num_experts});
  } else {
    launch(groups);
  }
}

// Groups count by their most probable expert.
template <class Groups>
void launch_softmax_gate(const GateRows& rows, const GateForm& form, const Groups& groups) {
  const GateRows of = rows;
  const bool normalise = form.normalise;
  const float scale = form.scale;
  for_each_shaped_team(
      "softmax_gate", of.num_rows, SumTerms::shape, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = of.logits + row * of.num_experts;
        const float top = largest(team, of.num_experts, [=](std::int64_t i) { return in[i]; });
        const SumTerms terms(team);
        const float sum = sum_in_partials(
            team, terms, of.num_experts, [=](std::int64_t i) { return exp_of(in[i] - top); },
            [](float value, float partial) { return partial + value; });
        const std::uint64_t kept = groups.kept(team, [=](std::int64_t i) { return in[i]; });
        float chosen_sum = 0.0F;
        std::uint64_t code = above_all_codes;
        for (std::int64_t k = 0; k < of.top_k; ++k) {
          code = groups.best_kept(team, kept, code, [=](std::int64_t i) { return in[i]; });
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

void softmax_gate(const GateRows& rows, const GateForm& form) {
  METRO_REQUIRE(form.best_of_group == 1, "the sum of several probabilities of a group");
  with_groups_of(form, rows, [&](const auto& groups) { launch_softmax_gate(rows, form, groups); });
}

// What the experts of a row are chosen by: kept by the team, so that a sigmoid is computed once.
class ChoiceScores {
 public:
  static constexpr std::int64_t most_experts = 4096;  // model/families/common.cpp allows no more
#if METRO_DEVICE_FORM
  KOKKOS_FUNCTION ChoiceScores(const Team& team, std::int64_t num_experts)
      : values_(static_cast<float*>(team.shared(bytes_of(num_experts)))) {}
#else
  ChoiceScores(const Team& /*one thread*/, std::int64_t /*num_experts*/) {}
#endif
  KOKKOS_INLINE_FUNCTION static constexpr std::int64_t bytes_of(std::int64_t num_experts) {
    return num_experts * std::int64_t{sizeof(float)};
  }
  KOKKOS_FUNCTION float* data() {
    return values_;
  }

 private:
#if METRO_DEVICE_FORM
  float* values_;
#else
  float values_[most_experts];
#endif
};

// By one thread: the experts of a row by descending weight, ties to the lower id.
KOKKOS_INLINE_FUNCTION void sort_choice(std::int32_t* expert_ids, float* weights, std::int64_t top_k) {
  for (std::int64_t end = 1; end < top_k; ++end) {
    const std::int32_t expert = expert_ids[end];
    const float weight = weights[end];
    std::int64_t place = end;
    for (; place > 0 && rank_code(weight, expert) > rank_code(weights[place - 1], expert_ids[place - 1]); --place) {
      expert_ids[place] = expert_ids[place - 1];
      weights[place] = weights[place - 1];
    }
    expert_ids[place] = expert;
    weights[place] = weight;
  }
}

// Experts are chosen by their scores with the correction, and weighted by those without. The sum that normalises them
// is kept from 0 as the published models do.
template <class Groups>
void launch_sigmoid_gate(const GateRows& rows, const GateForm& form, const float* correction, const Groups& groups) {
  const GateRows of = rows;
  const bool normalise = form.normalise;
  const float scale = form.scale;
  const TeamShape shape{256, ChoiceScores::bytes_of(of.num_experts)};
  for_each_shaped_team(
      "sigmoid_gate", of.num_rows, shape, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = of.logits + row * of.num_experts;
        std::int32_t* ids = of.expert_ids + row * of.top_k;
        float* weights = of.weights + row * of.top_k;
        ChoiceScores scores(team, of.num_experts);
        float* choice = scores.data();
        for_each_element(team, of.num_experts, [=](std::int64_t i) {
          choice[i] = sigmoid(in[i]) + (correction == nullptr ? 0.0F : correction[i]);
        });
        team.barrier();
        const std::uint64_t kept = groups.kept(team, [=](std::int64_t i) { return choice[i]; });
        std::uint64_t code = above_all_codes;
        for (std::int64_t k = 0; k < of.top_k; ++k) {
          code = groups.best_kept(team, kept, code, [=](std::int64_t i) { return choice[i]; });
          if (team.rank() == 0) {
            ids[k] = id_of_rank_code(code);
            weights[k] = sigmoid(in[ids[k]]);
          }
        }
        if (team.rank() == 0) {
          sort_choice(ids, weights, of.top_k);
          float sum = 0.0F;
          for (std::int64_t k = 0; k < of.top_k; ++k) {
            sum = sum + weights[k];
          }
          for (std::int64_t k = 0; k < of.top_k; ++k) {
            weights[k] = (normalise ? weights[k] / (sum + 1e-20F) : weights[k]) * scale;
          }
        }
      });
}

void sigmoid_gate(const GateRows& rows, const GateForm& form, const float* correction) {
  METRO_REQUIRE(rows.num_experts <= ChoiceScores::most_experts, std::to_string(rows.num_experts));
  with_groups_of(form, rows, [&](const auto& groups) { launch_sigmoid_gate(rows, form, correction, groups); });
}

// The top_k by logits, then a softmax over those alone.
void chosen_softmax_gate(const GateRows& rows, float scale) {
  const GateRows of = rows;
  for_each_team(
      "chosen_softmax_gate", of.num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = of.logits + row * of.num_experts;
        std::int32_t* ids = of.expert_ids + row * of.top_k;
        float* weights = of.weights + row * of.top_k;
        float top = 0.0F;
        float sum = 0.0F;
        std::uint64_t code = above_all_codes;
        for (std::int64_t k = 0; k < of.top_k; ++k) {
          code = best_below(team, in, of.num_experts, code);
          const std::int32_t expert = id_of_rank_code(code);
          top = k == 0 ? in[expert] : top;
          const float weight = exp_of(in[expert] - top);
          sum = sum + weight;
          if (team.rank() == 0) {
            ids[k] = expert;
            weights[k] = weight;
          }
        }
        if (team.rank() == 0) {
          for (std::int64_t k = 0; k < of.top_k; ++k) {
            weights[k] = weights[k] / sum * scale;
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
  METRO_REQUIRE(form.kind == GateKind::sigmoid || correction == nullptr, "a correction of a gate without sigmoid");
  require_kernel_memory(
      "gate_top_k", {{"logits", logits}, {"correction", correction}, {"expert_ids", expert_ids}, {"weights", weights}});
  const GateRows rows{logits, num_rows, num_experts, top_k, expert_ids, weights};
  switch (form.kind) {
    case GateKind::softmax:
      return softmax_gate(rows, form);
    case GateKind::sigmoid:
      return sigmoid_gate(rows, form, correction);
    case GateKind::chosen_softmax:
      return chosen_softmax_gate(rows, form.scale);
    case GateKind::sparsemixer:
      return sparsemixer_gate(rows, form.jitter);
    default:
      METRO_REQUIRE(false, "a gate of another form");
  }
}

}  // namespace metro
