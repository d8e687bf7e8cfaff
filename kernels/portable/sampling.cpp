// From logits to tokens and log-probabilities.
#include "kernels/sampling.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/row_reductions.hpp"

#include <string>

namespace metro {

using namespace portable;

void argmax(const float* logits, std::int64_t num_rows, std::int64_t vocab, std::int32_t* tokens) {
  METRO_REQUIRE(vocab > 0, std::to_string(vocab));
  for_each_team(
      "argmax", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const std::uint64_t best = best_below(team, logits + row * vocab, vocab, above_all_codes);
        if (team.rank() == 0) {
          tokens[row] = id_of_rank_code(best);
        }
      });
}

void log_softmax(const float* logits, std::int64_t num_rows, std::int64_t vocab, float* logprobs) {
  for_each_team(
      "log_softmax", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = logits + row * vocab;
        float* out = logprobs + row * vocab;
        const float top = largest(team, vocab, [=](std::int64_t i) { return in[i]; });
        const float sum =
            sum_in_partials(team, vocab, [=](std::int64_t i, float partial) { return partial + exp_of(in[i] - top); });
        const float log_sum = log_of(sum);
        for_each_element(team, vocab, [=](std::int64_t i) { out[i] = in[i] - top - log_sum; });
      });
}

void top_logprobs(const float* logprobs, std::int64_t num_rows, std::int64_t vocab, std::int64_t num_top,
                  std::int32_t* ids, float* values) {
  METRO_REQUIRE(num_top >= 0 && num_top <= vocab, std::to_string(num_top) + " of " + std::to_string(vocab));
  for_each_team(
      "top_logprobs", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = logprobs + row * vocab;
        std::uint64_t code = above_all_codes;
        for (std::int64_t i = 0; i < num_top; ++i) {
          code = best_below(team, in, vocab, code);
          if (team.rank() == 0) {
            ids[row * num_top + i] = id_of_rank_code(code);
            values[row * num_top + i] = in[id_of_rank_code(code)];
          }
        }
      });
}

}  // namespace metro
