// Requests on their way from the input file to the scheduler of every rank. Rank 0 reads, validates and tokenises and
// broadcasts accepted requests in windows; rejections end here, in errors.jsonl.
#pragma once

#include "requests/completion_writer.hpp"
#include "requests/request.hpp"
#include "requests/request_reader.hpp"
#include "requests/scheduler.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace metro {

class RequestFeed {
 public:
  // reader and writer: rank 0 only, null elsewhere. A new window is fetched when fewer than window_size requests wait.
  RequestFeed(RequestReader* reader, CompletionWriter* writer, Transport& transport, std::int64_t window_size);

  // Collective (all ranks decide alike whether a window is due). Adds requests to `scheduler`.
  void refill(Scheduler& scheduler);
  bool exhausted() const { return exhausted_; }

  // Rank 0: log-probabilities of the next tokens of a request's prompt.
  void add_prompt_scores(std::int64_t request_id, std::vector<SampledToken> scores);
  // Rank 0: takes a finished sequence. Returns its line when all completions of the line are finished; the feed then
  // knows no more of it.
  std::optional<CompletedLine> finish(FinishedSequence finished);

  std::int64_t num_accepted() const { return num_accepted_; }
  std::int64_t num_rejected() const { return num_rejected_; }  // rank 0 only

 private:
  std::vector<Request> read_window();
  // The line of a request: the last whose first request is not behind it.
  std::map<std::int64_t, CompletedLine>::iterator line_of(std::int64_t request_id);

  RequestReader* reader_;
  CompletionWriter* writer_;
  Transport* transport_;
  std::int64_t window_size_;
  bool exhausted_ = false;
  std::int64_t num_accepted_ = 0;
  std::int64_t num_rejected_ = 0;
  std::map<std::int64_t, CompletedLine> lines_;  // in work, by the id of their first request; rank 0 only
};

}  // namespace metro
