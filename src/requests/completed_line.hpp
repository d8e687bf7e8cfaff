// A line of the input whose completions are all finished: what becomes a line of completions.jsonl.
#pragma once

#include "requests/request.hpp"
#include "requests/sampled_token.hpp"
#include "requests/scheduler.hpp"

#include <vector>

namespace metro {

struct CompletedLine {
  RequestOrigin origin;
  std::vector<FinishedSequence> samples;    // [origin.num_samples], by sample_index
  std::vector<SampledToken> prompt_scores;  // of all tokens of the prompt but the first; empty unless wanted
};

}  // namespace metro
