// Finds the stop strings of a request in the text of its tokens, wherever token boundaries are. The rank that generates
// a sequence watches it, and the writer finds the place again from the tokens.
#pragma once

#include "requests/sampling_options.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metro {

// stop[string_idx] stands at bytes [begin, end) of the text of the generated tokens.
struct StopMatch {
  std::int32_t string_idx = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

class StopWatch {
 public:
  // Watches for options.stop; what ends within the text of the first options.min_tokens tokens does not count.
  // `tokenizer` must outlive it.
  StopWatch(const Tokenizer& tokenizer, const SamplingOptions& options);

  // Takes the next generated token. Of the stop strings that end in the text that became complete with it, the one
  // that ends first; of several that end there, the first in the list. Special tokens have no text.
  std::optional<StopMatch> push(std::int32_t token);

  std::int64_t num_tokens() const { return num_tokens_; }  // taken so far

 private:
  StreamingDecoder decoder_;
  std::vector<std::string> stop_;
  std::int64_t min_tokens_;
  std::int64_t num_tokens_ = 0;
  std::string text_;
};

}  // namespace metro
