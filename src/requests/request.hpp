// One request: one completion to be made of a line of the input file, validated and tokenised. A line that asks for n
// completions gives n requests.
#pragma once

#include "base/digest.hpp"
#include "requests/sampled_token.hpp"
#include "requests/sampling_options.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace metro {

// What every rank knows of a request: all that scheduling and sampling need.
struct Request {
  std::int64_t id = 0;               // consecutive over accepted requests, in input order
  std::vector<std::int32_t> prompt;  // at least one token
  std::int32_t max_tokens = 0;       // >= 1; prompt + max_tokens fits model.max_context
  bool ignore_eos = false;           // end tokens do not end the completion
  std::int32_t num_logprobs = -1;    // -1: none; 0: of the sampled token; n: and of the n likeliest
  bool scores_prompt = false;        // log-probabilities of the prompt's tokens too, as num_logprobs says
  SamplingOptions sampling;
  std::vector<SampledToken> generated;  // by an earlier part of the run; fewer than max_tokens

  bool operator==(const Request&) const = default;
};

// A line of the input, known again by both in a later part of the run.
struct InputLine {
  std::int64_t number = 0;  // from 1, over all files
  Digest digest = 0;        // of its text

  bool operator==(const InputLine&) const = default;
};

// What only rank 0 needs, to write the result of a line.
struct RequestOrigin {
  std::string file;       // as requests.input names it; "-": standard input
  std::int64_t line = 0;  // 1-based line of that file
  InputLine input_line;
  std::optional<double> arrival_s;  // not to be admitted before, in seconds from the start of the step loop
  std::string custom_id;
  std::string model;  // as given in the line, else the family of the model
  std::int32_t num_samples = 1;
  bool is_chat = false;  // the prompt was made of messages, the answer is one
  bool return_token_ids = false;
  bool include_stop = false;      // the text ends behind the stop string or token, not before it
  bool echo = false;              // the result begins with the prompt
  bool drops_completion = false;  // max_tokens was 0: only the prompt is wanted
};

// Requests as bytes, for the broadcast from rank 0. unpack_requests throws Bug on malformed bytes.
std::vector<std::byte> pack_requests(std::span<const Request> requests);
std::vector<Request> unpack_requests(std::span<const std::byte> bytes);

}  // namespace metro
