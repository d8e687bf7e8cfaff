#include "resume/continued_line.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace metro {

namespace {

void require(bool holds, const RequestOrigin& origin, const std::string& what) {
  if (!holds) {
    throw Error(ExitCode::input,
                fmt::format("the state of the unfinished run does not fit line {} of {}: {}; --overwrite begins anew",
                            origin.line, origin.file, what));
  }
}

void require_tokens(const std::vector<SampledToken>& tokens, const Request& request, std::int64_t vocab_size,
                    const RequestOrigin& origin) {
  const auto is_token = [&](std::int32_t token) { return token >= 0 && token < vocab_size; };
  for (const SampledToken& one : tokens) {
    require(is_token(one.token), origin, fmt::format("token {}", one.token));
    require(std::ssize(one.likeliest) == std::max(0, request.num_logprobs), origin,
            fmt::format("{} log-probabilities", one.likeliest.size()));
    require(std::ranges::all_of(one.likeliest, [&](const TokenLogprob& other) { return is_token(other.token); }),
            origin, "log-probability of a token that does not exist");
    require(one.stop_string >= -1 && one.stop_string < std::ssize(request.sampling.stop), origin,
            fmt::format("stop string {}", one.stop_string));
  }
}

}  // namespace

ContinuedLine continue_line(AcceptedLine accepted, EarlierRequest earlier, std::int64_t vocab_size) {
  ContinuedLine result;
  result.line.origin = std::move(accepted.origin);
  const RequestOrigin& origin = result.line.origin;
  if (earlier.samples.empty()) {
    result.requests = std::move(accepted.samples);
    return result;
  }
  require(earlier.samples.size() == accepted.samples.size(), origin,
          fmt::format("{} completions", earlier.samples.size()));
  require_tokens(earlier.prompt_scores, accepted.samples.front(), vocab_size, origin);
  const bool wants_scores = accepted.samples.front().scores_prompt && !earlier.samples.front().tokens.empty();
  const std::int64_t num_scores = wants_scores ? std::ssize(accepted.samples.front().prompt) - 1 : 0;
  require(std::ssize(earlier.prompt_scores) == num_scores, origin,
          fmt::format("{} scores of its prompt", earlier.prompt_scores.size()));
  result.line.prompt_scores = std::move(earlier.prompt_scores);

  for (std::size_t i = 0; i < accepted.samples.size(); ++i) {
    Request& request = accepted.samples[i];
    auto& [tokens, reason] = earlier.samples[i];
    require_tokens(tokens, request, vocab_size, origin);
    const bool is_finished = reason != FinishReason::none;
    const std::int64_t most = is_finished ? request.max_tokens : request.max_tokens - 1;
    require(std::ssize(tokens) <= most && (!is_finished || !tokens.empty()), origin,
            fmt::format("{} tokens", tokens.size()));
    if (is_finished) {
      result.line.samples.push_back({std::move(request), std::move(tokens), reason});
      continue;
    }
    request.scores_prompt = request.scores_prompt && tokens.empty();
    request.generated = std::move(tokens);
    result.requests.push_back(std::move(request));
  }
  require(!result.requests.empty(), origin, "all its completions are finished");
  return result;
}

}  // namespace metro
