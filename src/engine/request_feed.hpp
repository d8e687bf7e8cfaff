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

namespace metro {

class RequestFeed {
 public:
  // reader and writer: rank 0 only, null elsewhere. A new window is fetched when fewer than window_size requests wait.
  RequestFeed(RequestReader* reader, CompletionWriter* writer, Transport& transport, std::int64_t window_size);

  // Collective (all ranks decide alike whether a window is due). Adds requests to `scheduler`.
  void refill(Scheduler& scheduler);
  bool exhausted() const { return exhausted_; }

  // Rank 0: where a request came from; forgotten by this call.
  RequestOrigin take_origin(std::int64_t request_id);

  std::int64_t num_accepted() const { return num_accepted_; }
  std::int64_t num_rejected() const { return num_rejected_; }  // rank 0 only

 private:
  std::vector<Request> read_window();

  RequestReader* reader_;
  CompletionWriter* writer_;
  Transport* transport_;
  std::int64_t window_size_;
  bool exhausted_ = false;
  std::int64_t num_accepted_ = 0;
  std::int64_t num_rejected_ = 0;
  std::map<std::int64_t, RequestOrigin> origins_;
};

}  // namespace metro
