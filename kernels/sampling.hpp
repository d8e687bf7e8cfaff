// From logits to tokens and log-probabilities. In every order NaN comes last and -0 equals +0.
#pragma once

#include <cstdint>

namespace metro {

// tokens[r] = index of the largest of logits[r, :], ties to the lower index. logits [num_rows, vocab].
void argmax(const float* logits, std::int64_t num_rows, std::int64_t vocab, std::int32_t* tokens);

// picked[r] = values[r, ids[r]]. values [num_rows, vocab], ids, picked [num_rows].
void pick(const float* values, std::int64_t num_rows, std::int64_t vocab, const std::int32_t* ids, float* picked);

// logprobs[r, i] = logits[r, i] - log(sum_j exp(logits[r, j])), the sum as in attention's softmax.
// [num_rows, vocab], may be the same array.
void log_softmax(const float* logits, std::int64_t num_rows, std::int64_t vocab, float* logprobs);

// The num_top likeliest of each row of logprobs [num_rows, vocab] in descending order, ties to the lower index; of
// logits they are the same tokens. ids, values [num_rows, num_top].
void top_logprobs(const float* logprobs, std::int64_t num_rows, std::int64_t vocab, std::int64_t num_top,
                  std::int32_t* ids, float* values);

// weights[r, i] = exp((logits[r, i] - top) / temperature), top = the largest of logits[r, :]; the argument in double,
// then rounded to float. The largest have weight 1, whatever they are; NaN has weight 0. temperature > 0.
// [num_rows, vocab], may be the same array.
void sampling_weights(const float* logits, std::int64_t num_rows, std::int64_t vocab, double temperature,
                      float* weights);

// codes[r, i]: an integer that is the larger the earlier (values[r, i], i) comes in the order of top_logprobs; distinct
// within a row. codes, values [num_rows, vocab].
void order_codes(const float* values, std::int64_t num_rows, std::int64_t vocab, std::uint64_t* codes);

// i of such a code.
std::int32_t id_of_order_code(std::uint64_t code);

}  // namespace metro
