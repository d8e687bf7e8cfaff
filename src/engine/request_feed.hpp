// Requests on their way from the input to the scheduler of every rank. Rank 0 reads, validates and tokenises and
// broadcasts what has arrived in windows; rejections end here, in errors.jsonl. Only rank 0 looks at a clock: a request
// that has not arrived is not broadcast yet.
#pragma once

#include "decoder/phase_clock.hpp"
#include "requests/completion_writer.hpp"
#include "requests/request.hpp"
#include "requests/request_reader.hpp"
#include "requests/request_window.hpp"
#include "requests/scheduler.hpp"
#include "resume/run_state.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace metro {

class RequestFeed {
 public:
  // reader and writer: rank 0 only, null elsewhere. A new window is fetched when fewer than window_size requests wait.
  // While rank 0 waits for requests it sends an empty window every heartbeat_s seconds, which must be well below the
  // time-out of the transport.
  RequestFeed(RequestReader* reader, CompletionWriter* writer, Transport& transport, std::int64_t window_size,
              double heartbeat_s);

  // Rank 0, before the first refill(): requests that an earlier part of the run has begun; their lines are to come.
  void go_on_from(std::vector<EarlierRequest> earlier, std::int64_t vocab_size);

  // Collective (all ranks decide alike whether a window is due). Adds requests to `scheduler`; comes back when it has
  // something to do, when the input has ended, and when a signal asks any rank to stop while there is nothing to do:
  // then it returns true. `start`: when the step loop began, from which arrivals count.
  bool refill(Scheduler& scheduler, Clock::time_point start);
  bool exhausted() const { return exhausted_; }

  // Rank 0: where a request in work came from; valid until its line is finished.
  const RequestOrigin& origin_of(std::int64_t request_id) { return line_of(request_id)->second.origin; }
  // Rank 0: log-probabilities of the next tokens of a request's prompt.
  void add_prompt_scores(std::int64_t request_id, std::vector<SampledToken> scores);
  // Rank 0: takes a finished sequence. Returns its line when all completions of the line are finished; the feed then
  // knows no more of it.
  std::optional<CompletedLine> finish(FinishedSequence finished);

  // Rank 0: what is in work and has tokens, for a later part of the run.
  std::vector<EarlierRequest> unfinished(const Scheduler& scheduler);

  std::int64_t num_accepted() const { return num_accepted_; }
  std::int64_t num_rejected() const { return num_rejected_; }  // rank 0 only

 private:
  RequestWindow next_window(bool nothing_to_do, Clock::time_point start);
  std::vector<Request> read_window(bool nothing_to_do, Clock::time_point start);
  void take_line(AcceptedLine accepted, std::vector<Request>& requests);
  void warn();
  // The line of a request: the last whose first request is not behind it.
  std::map<std::int64_t, CompletedLine>::iterator line_of(std::int64_t request_id);

  RequestReader* reader_;
  CompletionWriter* writer_;
  Transport* transport_;
  std::int64_t window_size_;
  double heartbeat_s_;
  std::optional<RequestWindows> windows_;  // rank 0 only
  bool exhausted_ = false;
  std::int64_t num_accepted_ = 0;
  std::int64_t num_rejected_ = 0;
  std::map<std::int64_t, CompletedLine> lines_;     // in work, by the id of their first request; rank 0 only
  std::map<std::int64_t, EarlierRequest> earlier_;  // by number of their line, which has not come yet; rank 0 only
  std::int64_t vocab_size_ = 0;
  bool warned_of_ids_ = false, warned_of_trace_ = false;
};

}  // namespace metro
