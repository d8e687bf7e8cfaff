#include "requests/stop_watch.hpp"

namespace metro {

StopWatch::StopWatch(const Tokenizer& tokenizer, const SamplingOptions& options)
    : decoder_(tokenizer, true, TextPart::continuation), stop_(options.stop), min_tokens_(options.min_tokens) {}

std::optional<StopMatch> StopWatch::push(std::int32_t token) {
  const std::size_t num_old = text_.size();
  text_ += decoder_.push(token);
  ++num_tokens_;
  if (num_tokens_ <= min_tokens_ || text_.size() == num_old) {
    return std::nullopt;
  }
  std::optional<StopMatch> first;
  for (std::size_t i = 0; i < stop_.size(); ++i) {
    // A match ends in the new text, so it begins at most one byte less than its length before that.
    const std::size_t length = stop_[i].size();
    const std::size_t begin = text_.find(stop_[i], num_old + 1 > length ? num_old + 1 - length : 0);
    if (begin != std::string::npos && (!first || begin + length < first->end)) {
      first = {static_cast<std::int32_t>(i), begin, begin + length};
    }
  }
  return first;
}

}  // namespace metro
