#include "engine/request_feed.hpp"

#include "base/error.hpp"
#include "transport/agree.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

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
  while (static_cast<std::int64_t>(window.size()) < window_size_) {
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
    auto& accepted = std::get<AcceptedLine>(line);
    lines_[accepted.samples.front().id].origin = std::move(accepted.origin);
    std::move(accepted.samples.begin(), accepted.samples.end(), std::back_inserter(window));
  }
  return window;
}

std::map<std::int64_t, CompletedLine>::iterator RequestFeed::line_of(std::int64_t request_id) {
  auto behind = lines_.upper_bound(request_id);
  METRO_REQUIRE(behind != lines_.begin(), "unknown request " + std::to_string(request_id));
  const auto found = --behind;
  METRO_REQUIRE(request_id - found->first < found->second.origin.num_samples,
                "unknown request " + std::to_string(request_id));
  return found;
}

void RequestFeed::add_prompt_scores(std::int64_t request_id, std::vector<SampledToken> scores) {
  auto& known = line_of(request_id)->second.prompt_scores;
  std::move(scores.begin(), scores.end(), std::back_inserter(known));
}

std::optional<CompletedLine> RequestFeed::finish(FinishedSequence finished) {
  const auto found = line_of(finished.request.id);
  std::vector<FinishedSequence>& samples = found->second.samples;
  samples.push_back(std::move(finished));
  if (static_cast<std::int32_t>(samples.size()) < found->second.origin.num_samples) {
    return std::nullopt;
  }
  const auto index = [](const FinishedSequence& sample) { return sample.request.sampling.sample_index; };
  std::sort(samples.begin(), samples.end(), [&](const auto& a, const auto& b) { return index(a) < index(b); });
  CompletedLine line = std::move(found->second);
  lines_.erase(found);
  return line;
}

}  // namespace metro
