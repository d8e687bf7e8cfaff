#include "requests/request_window.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace metro {

namespace {

// Lines that one window may read: a long run of bad lines must not keep the other ranks waiting.
constexpr std::int64_t most_lines = 10'000;

bool has_arrived(const AcceptedLine& line, double now_s) {
  return line.origin.arrival_s.value_or(0.0) <= now_s;
}

}  // namespace

RequestWindows::RequestWindows(RequestReader& reader, std::function<void(const Rejection&)> reject)
    : reader_(&reader), reject_(std::move(reject)) {}

RequestWindow RequestWindows::take(double now_s, std::int64_t most, double patience_s) {
  METRO_REQUIRE(most >= 1, fmt::format("most {}", most));

  RequestWindow window;
  std::int64_t num_requests = 0;
  for (std::int64_t num_lines = 0; num_lines < most_lines && num_requests < most;) {
    if (next_) {
      if (!has_arrived(*next_, now_s)) {
        break;
      }
      num_requests += std::ssize(next_->samples);
      window.lines.push_back(std::move(*next_));
      next_.reset();
      continue;
    }
    ReadItem item = reader_->next(num_lines == 0 && window.lines.empty() ? patience_s : 0.0);
    ++num_lines;
    if (std::holds_alternative<NotYet>(item)) {
      break;
    }
    if (std::holds_alternative<std::monostate>(item)) {
      window.ended = true;
      break;
    }
    if (const auto* rejection = std::get_if<Rejection>(&item)) {
      reject_(*rejection);
    } else {
      next_ = std::get<AcceptedLine>(std::move(item));
    }
  }
  return window;
}

double RequestWindows::pause_s(double now_s, double most_s) const {
  return next_ ? std::clamp(next_->origin.arrival_s.value_or(0.0) - now_s, 0.0, most_s) : 0.0;
}

}  // namespace metro
