// Requests that have arrived, in portions: what rank 0 hands out next, as a function of the input and of a time that it
// is given. Knows no clock and no ranks.
#pragma once

#include "requests/request_reader.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace metro {

struct RequestWindow {
  std::vector<AcceptedLine> lines;  // in the order of the input, which is the order of arrival
  bool ended = false;               // the input has no more
};

class RequestWindows {
 public:
  // `reject` is called for each line that is refused, when it is read.
  RequestWindows(RequestReader& reader, std::function<void(const Rejection&)> reject);

  // The next lines, of about `most` requests: only the samples of the last line may exceed it. None arrives after
  // now_s. Waits for another process to send a line for at most patience_s seconds, and only for the first one. Reads a
  // bounded number of lines, so that a window may be empty although there are more.
  RequestWindow take(double now_s, std::int64_t most, double patience_s);

  // How long to wait before the next take(), at most most_s seconds, when nothing else is to be done at now_s: until
  // the request that was read last arrives.
  double pause_s(double now_s, double most_s) const;

 private:
  RequestReader* reader_;
  std::function<void(const Rejection&)> reject_;
  std::optional<AcceptedLine> next_;  // read, not yet arrived
};

}  // namespace metro
