#include "engine/request_feed.hpp"

#include "base/error.hpp"
#include "base/stop_signals.hpp"
#include "resume/continued_line.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <thread>
#include <utility>

namespace metro {

namespace {

void print_warning(const std::string& text) {
  // On a terminal there may be a line of progress, which is written again later.
  fmt::print(stderr, "{}metro: warning: {}\n", ::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "", text);
}

}  // namespace

RequestFeed::RequestFeed(RequestReader* reader, CompletionWriter* writer, Transport& transport,
                         std::int64_t window_size, double heartbeat_s)
    : reader_(reader), writer_(writer), transport_(&transport), window_size_(window_size), heartbeat_s_(heartbeat_s) {
  if (reader_ != nullptr) {
    windows_.emplace(*reader_, [this](const Rejection& rejection) {
      writer_->write(rejection);
      ++num_rejected_;
    });
  }
}

void RequestFeed::go_on_from(std::vector<EarlierRequest> earlier, std::int64_t vocab_size) {
  vocab_size_ = vocab_size;
  for (EarlierRequest& request : earlier) {
    const std::int64_t line = request.line.number;
    earlier_[line] = std::move(request);
  }
}

bool RequestFeed::refill(Scheduler& scheduler, Clock::time_point start) {
  if (exhausted_ || scheduler.num_waiting() >= window_size_) {
    return false;
  }
  do {
    transport_->set_phase("reading requests");
    // The window as bytes, behind one byte that says whether the input has ended.
    const std::string window = from_rank_0(*transport_, [&] {
      const std::vector<std::byte> requests = pack_requests(read_window(scheduler.idle(), start));
      std::string bytes(1, exhausted_ ? '\1' : '\0');
      return bytes.append(reinterpret_cast<const char*>(requests.data()), requests.size());
    });
    exhausted_ = window.at(0) == '\1';
    std::vector<Request> requests = unpack_requests(std::as_bytes(std::span(window).subspan(1)));
    num_accepted_ += static_cast<std::int64_t>(requests.size());
    scheduler.add(std::move(requests));
    if (exhausted_ || !scheduler.idle()) {
      return false;
    }
  } while (!any_rank(*transport_, stop_is_requested()));
  return true;
}

// When nothing else is to be done, waits for what is to arrive next.
RequestWindow RequestFeed::next_window(bool nothing_to_do, Clock::time_point start) {
  const double pause_s = nothing_to_do ? windows_->pause_s(seconds_between(start, Clock::now()), heartbeat_s_) : 0.0;
  std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  const double patience_s = nothing_to_do ? heartbeat_s_ - pause_s : 0.0;
  return windows_->take(seconds_between(start, Clock::now()), window_size_, patience_s);
}

std::vector<Request> RequestFeed::read_window(bool nothing_to_do, Clock::time_point start) {
  RequestWindow window = next_window(nothing_to_do, start);
  exhausted_ = window.ended;
  warn();
  writer_->flush_if_due(seconds_between(start, Clock::now()));
  std::vector<Request> requests;
  for (AcceptedLine& accepted : window.lines) {
    take_line(std::move(accepted), requests);
  }
  return requests;
}

void RequestFeed::take_line(AcceptedLine accepted, std::vector<Request>& requests) {
  const std::int64_t first_id = accepted.samples.front().id;
  EarlierRequest earlier;
  if (auto known = earlier_.extract(accepted.origin.input_line.number)) {
    earlier = std::move(known.mapped());
  }
  ContinuedLine taken = continue_line(std::move(accepted), std::move(earlier), vocab_size_);
  lines_[first_id] = std::move(taken.line);
  std::move(taken.requests.begin(), taken.requests.end(), std::back_inserter(requests));
}

// Once for each thing that is allowed but may not be meant.
void RequestFeed::warn() {
  if (const auto& repeated = reader_->first_repeated_id(); repeated && !warned_of_ids_) {
    warned_of_ids_ = true;
    print_warning(
        fmt::format("custom_id {} of {}:{} is there before; both requests are answered, but nothing tells "
                    "their answers apart (further ones are only counted)",
                    repeated->custom_id, repeated->file, repeated->line));
  }
  if (reader_->num_behind_trace() > 0 && !warned_of_trace_) {
    warned_of_trace_ = true;
    print_warning(
        fmt::format("requests.arrivals has fewer rows than the input has lines; the rest arrives with the "
                    "last row"));
  }
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

std::vector<EarlierRequest> RequestFeed::unfinished(const Scheduler& scheduler) {
  std::map<std::int64_t, EarlierRequest> by_first_id;
  for (const auto& [first_id, line] : lines_) {
    EarlierRequest& request = by_first_id[first_id];
    request.line = line.origin.input_line;
    request.samples.resize(static_cast<std::size_t>(line.origin.num_samples));
    request.prompt_scores = line.prompt_scores;
    for (const FinishedSequence& sample : line.samples) {
      const auto sample_idx = static_cast<std::size_t>(sample.request.sampling.sample_index);
      request.samples[sample_idx] = {sample.tokens, sample.reason};
    }
  }
  for (const UnfinishedSequence& sequence : scheduler.unfinished()) {
    const auto sample_idx = static_cast<std::size_t>(sequence.request->sampling.sample_index);
    by_first_id.at(line_of(sequence.request->id)->first).samples[sample_idx].tokens = *sequence.tokens;
  }
  std::vector<EarlierRequest> begun;
  for (auto& [first_id, request] : by_first_id) {
    // The first sample scores the prompt; while it has no token the scores may be incomplete and are made again.
    if (request.samples.front().tokens.empty()) {
      request.prompt_scores.clear();
    }
    const auto has_tokens = [](const EarlierSample& sample) { return !sample.tokens.empty(); };
    if (std::ranges::any_of(request.samples, has_tokens)) {
      begun.push_back(std::move(request));
    }
  }
  for (const auto& [line, request] : earlier_) {
    begun.push_back(request);
  }
  return begun;
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
