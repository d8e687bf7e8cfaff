// Sequences as the scheduler would hand them to the sampler.
#pragma once

#include "requests/scheduler.hpp"

#include <vector>

namespace metro::test {

inline Sequence make_sequence(std::vector<std::int32_t> prompt, const std::vector<std::int32_t>& generated,
                              const SamplingOptions& options = {}) {
  Sequence sequence;
  sequence.tokens = prompt;
  sequence.tokens.insert(sequence.tokens.end(), generated.begin(), generated.end());
  sequence.request.prompt = std::move(prompt);
  sequence.request.max_tokens = 100;
  sequence.request.sampling = options;
  return sequence;
}

}  // namespace metro::test
