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
#include "transport/transport.hpp"

#include <cstdint>
#include <map>
#include <optional>

namespace metro {

class RequestFeed {
 public:
  // reader and writer: rank 0 only, null elsewhere. A new window is fetched when fewer than window_size requests wait.
  // While rank 0 waits for requests it sends an empty window every heartbeat_s seconds, which must be well below the
  // time-out of the transport.
  RequestFeed(RequestReader* reader, CompletionWriter* writer, Transport& transport, std::int64_t window_size,
              double heartbeat_s);

  // Collective (all ranks decide alike whether a window is due). Adds requests to `scheduler`; comes back when it has
  // something to do or the input has ended. `start`: when the step loop began, from which arrivals count.
  void refill(Scheduler& scheduler, Clock::time_point start);
  bool exhausted() const { return exhausted_; }

  // Rank 0: where a request came from; forgotten by this call.
  RequestOrigin take_origin(std::int64_t request_id);

  std::int64_t num_accepted() const { return num_accepted_; }
  std::int64_t num_rejected() const { return num_rejected_; }  // rank 0 only

 private:
  RequestWindow next_window(bool nothing_to_do, Clock::time_point start);
  std::vector<Request> read_window(bool nothing_to_do, Clock::time_point start);
  void warn();

  RequestReader* reader_;
  CompletionWriter* writer_;
  Transport* transport_;
  std::int64_t window_size_;
  double heartbeat_s_;
  std::optional<RequestWindows> windows_;  // rank 0 only
  bool exhausted_ = false;
  std::int64_t num_accepted_ = 0;
  std::int64_t num_rejected_ = 0;
  std::map<std::int64_t, RequestOrigin> origins_;  // of requests that wait or run
  bool warned_of_ids_ = false, warned_of_trace_ = false;
};

}  // namespace metro
