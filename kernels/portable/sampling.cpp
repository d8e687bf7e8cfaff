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
  require_kernel_memory("argmax", {{"logits", logits}, {"tokens", tokens}});
  for_each_team(
      "argmax", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const std::uint64_t best = best_below(team, logits + row * vocab, vocab, above_all_codes);
        if (team.rank() == 0) {
          tokens[row] = id_of_rank_code(best);
        }
      });
}

void pick(const float* values, std::int64_t num_rows, std::int64_t vocab, const std::int32_t* ids, float* picked) {
  require_kernel_memory("pick", {{"values", values}, {"ids", ids}, {"picked", picked}});
  for_each_item(
      "pick", num_rows, KOKKOS_LAMBDA(std::int64_t row) { picked[row] = values[row * vocab + ids[row]]; },
      num_rows * static_cast<std::int64_t>(sizeof(float)));
}

void log_softmax(const float* logits, std::int64_t num_rows, std::int64_t vocab, float* logprobs) {
  require_kernel_memory("log_softmax", {{"logits", logits}, {"logprobs", logprobs}});
  for_each_shaped_team(
      "log_softmax", num_rows, SumTerms::shape, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = logits + row * vocab;
        float* out = logprobs + row * vocab;
        const float top = largest(team, vocab, [=](std::int64_t i) { return in[i]; });
        const SumTerms terms(team);
        const float sum = sum_in_partials(
            team, terms, vocab, [=](std::int64_t i) { return exp_of(in[i] - top); },
            [](float value, float partial) { return partial + value; });
        const float log_sum = log_of(sum);
        for_each_element(team, vocab, [=](std::int64_t i) { out[i] = in[i] - top - log_sum; });
      });
}

void top_logprobs(const float* logprobs, std::int64_t num_rows, std::int64_t vocab, std::int64_t num_top,
                  std::int32_t* ids, float* values) {
  METRO_REQUIRE(num_top >= 0 && num_top <= vocab, std::to_string(num_top) + " of " + std::to_string(vocab));
  require_kernel_memory("top_logprobs", {{"logprobs", logprobs}, {"ids", ids}, {"values", values}});
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

void sampling_weights(const float* logits, std::int64_t num_rows, std::int64_t vocab, double temperature,
                      float* weights) {
  METRO_REQUIRE(temperature > 0.0, std::to_string(temperature));
  require_kernel_memory("sampling_weights", {{"logits", logits}, {"weights", weights}});
  for_each_team(
      "sampling_weights", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = logits + row * vocab;
        float* out = weights + row * vocab;
        const float top = largest(team, vocab, [=](std::int64_t i) { return in[i]; });
        team.barrier();  // in and out may be one array
        for_each_element(team, vocab, [=](std::int64_t i) {
          const double distance = (static_cast<double>(in[i]) - static_cast<double>(top)) / temperature;
          // exp is 0 from here on; clamped so that what is far below fits a float.
          const float weight = exp_of(static_cast<float>(distance < -110.0 ? -110.0 : distance));
          out[i] = in[i] == top ? 1.0F : (weight == weight ? weight : 0.0F);
        });
      });
}

void order_codes(const float* values, std::int64_t num_rows, std::int64_t vocab, std::uint64_t* codes) {
  require_kernel_memory("order_codes", {{"values", values}, {"codes", codes}});
  for_each_team(
      "order_codes", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* in = values + row * vocab;
        std::uint64_t* out = codes + row * vocab;
        for_each_element(team, vocab, [=](std::int64_t i) { out[i] = rank_code(in[i], i); });
      });
}

std::int32_t id_of_order_code(std::uint64_t code) {
  return id_of_rank_code(code);
}

}  // namespace metro
