// One request: a line of the input file, validated and tokenised.
#pragma once

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
};

// What only rank 0 needs, to write the result.
struct RequestOrigin {
  std::string file;                 // as requests.input names it; "-": standard input
  std::int64_t line = 0;            // 1-based line of that file
  std::optional<double> arrival_s;  // not to be admitted before, in seconds from the start of the step loop
  std::string custom_id;
  std::string model;  // as given in the line, else the family of the model
  bool return_token_ids = false;
};

// Requests as bytes, for the broadcast from rank 0. unpack_requests throws Bug on malformed bytes.
std::vector<std::byte> pack_requests(std::span<const Request> requests);
std::vector<Request> unpack_requests(std::span<const std::byte> bytes);

}  // namespace metro
