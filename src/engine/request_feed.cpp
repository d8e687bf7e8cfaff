#include "engine/request_feed.hpp"

#include "base/error.hpp"
#include "transport/agree.hpp"

#include <cstring>

namespace metro {

RequestFeed::RequestFeed(RequestReader* reader, CompletionWriter* writer, Transport& transport,
                         std::int64_t window_size)
    : reader_(reader), writer_(writer), transport_(&transport), window_size_(window_size) {}

void RequestFeed::refill(Scheduler& scheduler) {
  while (!exhausted_ && scheduler.num_waiting() < window_size_) {
    transport_->set_phase("reading requests");
    // The window as bytes, behind one byte that says whether the input has ended.
    const std::string window = from_rank_0(*transport_, [this] {
      const std::vector<std::byte> requests = pack_requests(read_window());
      std::string bytes(1, exhausted_ ? '\1' : '\0');
      return bytes.append(reinterpret_cast<const char*>(requests.data()), requests.size());
    });
    exhausted_ = window.at(0) == '\1';
    std::vector<Request> requests = unpack_requests(std::as_bytes(std::span(window).subspan(1)));
    num_accepted_ += static_cast<std::int64_t>(requests.size());
    scheduler.add(std::move(requests));
  }
}

std::vector<Request> RequestFeed::read_window() {
  std::vector<Request> window;
  // Bounded by lines read as well: while rank 0 works through bad lines the others wait, and a new broadcast starts
  // their time-out anew.
  for (std::int64_t num_read = 0; std::ssize(window) < window_size_ && num_read < 4 * window_size_; ++num_read) {
    auto line = reader_->next();
    if (std::holds_alternative<std::monostate>(line)) {
      exhausted_ = true;
      break;
    }
    if (const auto* rejection = std::get_if<Rejection>(&line)) {
      writer_->write(*rejection);
      ++num_rejected_;
      continue;
    }
    auto& accepted = std::get<AcceptedRequest>(line);
    origins_.emplace(accepted.request.id, std::move(accepted.origin));
    window.push_back(std::move(accepted.request));
  }
  return window;
}

RequestOrigin RequestFeed::take_origin(std::int64_t request_id) {
  const auto found = origins_.find(request_id);
  METRO_REQUIRE(found != origins_.end(), "unknown request " + std::to_string(request_id));
  RequestOrigin origin = std::move(found->second);
  origins_.erase(found);
  return origin;
}

}  // namespace metro
