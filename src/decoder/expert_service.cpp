#include "decoder/expert_service.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernels/linear.hpp"

#include <algorithm>
#include <numeric>

namespace metro {

namespace {

constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));

// That have rows at a time.
std::int64_t most_experts(const ModelSpec& spec, std::int64_t num_rows) {
  return std::min(spec.moe.num_experts, num_rows);
}

}  // namespace

ExpertService::Sizes ExpertService::sizes(const ModelSpec& spec, std::int64_t num_ranks, const DecoderLimits& limits) {
  const std::int64_t hidden = spec.hidden_size;
  // Input, output, message of results and, in prefill, the received row.
  const std::int64_t bytes_per_row = (4 * hidden + spec.moe.intermediate_size) * float_bytes;
  const std::int64_t max_owned = limits.max_rows * spec.moe.top_k;
  const std::int64_t max_served = std::max<std::int64_t>(1, num_ranks * max_owned);
  Sizes sizes;
  sizes.num_ranks = num_ranks;
  sizes.round_rows = std::clamp<std::int64_t>(limits.exchange_bytes / bytes_per_row, 1, max_served);
  // Rounding slices up costs at most one row per owner.
  const std::int64_t rows = sizes.round_rows + num_ranks;
  sizes.inputs = rows * hidden;
  sizes.hidden = rows * spec.moe.intermediate_size;
  sizes.outputs = rows * hidden;
  sizes.send = rows * hidden + num_ranks * header_floats;
  // Only the last round's messages still have their headers.
  sizes.results = max_owned * hidden + num_ranks * header_floats;
  sizes.places = rows;
  if (limits.grouped_experts) {
    sizes.grouped_bytes = GroupedExperts::planned_bytes(hidden, spec.moe.intermediate_size, most_experts(spec, rows));
  }
  return sizes;
}

std::int64_t ExpertService::Sizes::num_bytes() const {
  return (inputs + hidden + outputs + send + results) * float_bytes +
         3 * places * static_cast<std::int64_t>(sizeof(std::int64_t)) + MessageHeaders::planned_bytes(num_ranks) +
         grouped_bytes;
}

ExpertService::ExpertService(const ModelSpec& spec, ExpertStore& store, DeviceExchange& exchange,
                             const DecoderLimits& limits, PhaseClock& clock)
    : hidden_size_(spec.hidden_size),
      store_(&store),
      exchange_(&exchange),
      clock_(&clock),
      headers_("expert results", exchange.size()),
      owned_(exchange.size(), limits.max_rows * spec.moe.top_k) {
  const Sizes planned = sizes(spec, exchange.size(), limits);
  max_round_rows_ = planned.round_rows;
  inputs_ = Buffer<float>("expert inputs", planned.inputs);
  hidden_ = Buffer<float>("expert hidden", planned.hidden);
  outputs_ = Buffer<float>("expert outputs", planned.outputs);
  send_ = Buffer<float>("expert results to send", planned.send);
  results_ = Buffer<float>("expert results", planned.results);
  input_places_ = Mirror<std::int64_t>("places of expert inputs", planned.places);
  output_places_ = Mirror<std::int64_t>("places of expert outputs", planned.places);
  message_places_ = Mirror<std::int64_t>("places of expert results in messages", planned.places);
  first_row_.resize(at(spec.moe.num_experts + 1));
  grouped_row_.reserve(at(planned.places));
  work_.reserve(at(spec.moe.num_experts));
  if (limits.grouped_experts) {
    grouped_.emplace(spec.hidden_size, spec.moe.intermediate_size, most_experts(spec, planned.places));
  }
  send_bytes_.resize(at(exchange.size()));
  recv_bytes_.resize(at(exchange.size()));
}

std::int64_t ExpertService::num_bytes() const {
  return inputs_.num_bytes() + hidden_.num_bytes() + outputs_.num_bytes() + send_.num_bytes() + results_.num_bytes() +
         headers_.num_bytes() + input_places_.num_bytes() + output_places_.num_bytes() + message_places_.num_bytes() +
         (grouped_ ? grouped_->num_bytes() : 0);
}

std::int64_t ExpertService::num_rounds(std::int64_t most_served) const {
  return std::max<std::int64_t>(1, ceil_div(most_served, max_round_rows_));
}

void ExpertService::begin(std::span<const std::int64_t> owned_by_rank, std::int64_t num_rounds,
                          ExpertArithmetic arithmetic) {
  owned_by_rank_.assign(owned_by_rank.begin(), owned_by_rank.end());
  arithmetic_ = arithmetic;
  num_rounds_ = num_rounds;
  rows_before_ = 0;
  const std::int64_t num_owned = std::accumulate(owned_by_rank_.begin(), owned_by_rank_.end(), std::int64_t{0});
  METRO_REQUIRE(num_owned * hidden_size_ + std::ssize(owned_by_rank_) * header_floats <= results_.size(),
                "result buffer too small");
}

void ExpertService::serve_round(std::int64_t moe_layer, std::int64_t round, std::span<const ServedAssignment> served,
                                std::span<const std::int64_t> served_of_rank, const float* base, Digest digest) {
  clock_->lap(Lap::routing);
  exchange_->set_phase("experts");
  compute(moe_layer, served, base);
  clock_->lap(Lap::experts);
  const std::int64_t sent_floats = pack_results(served_of_rank, digest);
  if (round > 0) {
    drop_headers(round - 1);
  }
  const std::int64_t received_floats = expect_results(round, digest);
  float* received = results_.data() + rows_before_ * hidden_size_;
  clock_->lap(Lap::routing);
  exchange_->set_phase("combine");
  exchange_->all_to_all(std::as_bytes(std::span(send_.data(), at(sent_floats))), send_bytes_,
                        std::as_writable_bytes(std::span(received, at(received_floats))), recv_bytes_);
  headers_.require(received, moe_layer, exchange_->transport());
  clock_->lap(Lap::combine);
  exchange_->set_phase("attention and dense layers");
}

std::int64_t ExpertService::expect_results(std::int64_t round, Digest digest) {
  std::int64_t message = 0;  // where it begins
  for (std::int64_t rank = 0; rank < exchange_->size(); ++rank) {
    const std::int64_t num_rows = slice_size(owned_by_rank_[at(rank)], round, num_rounds_);
    headers_.set_expected(rank, {digest, num_rows}, message);
    recv_bytes_[at(rank)] = (header_floats + num_rows * hidden_size_) * float_bytes;
    message += header_floats + num_rows * hidden_size_;
  }
  return message;
}

// Moves the rows of a round together, so that the next round can follow them: with many ranks and rounds the headers
// would take more room than the rows.
void ExpertService::drop_headers(std::int64_t round) {
  std::int64_t to = rows_before_ * hidden_size_;
  std::int64_t from = to;
  for (const std::int64_t count : owned_by_rank_) {
    from += header_floats;
    const std::int64_t num_rows = slice_size(count, round, num_rounds_);
    move_results(to, from, num_rows * hidden_size_);
    to += num_rows * hidden_size_;
    from += num_rows * hidden_size_;
    rows_before_ += num_rows;
  }
}

// By way of inputs_, which have been read: a queued copy must not overlap itself.
void ExpertService::move_results(std::int64_t to, std::int64_t from, std::int64_t num_floats) {
  for (std::int64_t first = 0; first < num_floats; first += inputs_.size()) {
    const std::int64_t num_bytes = std::min(inputs_.size(), num_floats - first) * float_bytes;
    queue_copy(inputs_.data(), results_.data() + from + first, num_bytes);
    queue_copy(results_.data() + to + first, inputs_.data(), num_bytes);
  }
}

void ExpertService::compute(std::int64_t moe_layer, std::span<const ServedAssignment> served, const float* base) {
  const auto num_served = static_cast<std::int64_t>(served.size());
  METRO_REQUIRE(num_served * hidden_size_ <= inputs_.size(), "more rows than a round holds");
  std::fill(first_row_.begin(), first_row_.end(), 0);
  for (const ServedAssignment& assignment : served) {
    ++first_row_[at(assignment.expert + 1)];
  }
  work_.clear();
  for (std::size_t expert = 0; expert + 1 < first_row_.size(); ++expert) {
    const std::int64_t num_rows = first_row_[expert + 1];
    first_row_[expert + 1] += first_row_[expert];
    if (num_rows > 0) {
      work_.push_back({store_->acquire(moe_layer, static_cast<std::int64_t>(expert)), first_row_[expert], num_rows});
    }
  }
  grouped_row_.resize(at(num_served));
  for (std::int64_t i = 0; i < num_served; ++i) {
    const std::int64_t row = first_row_[at(served[at(i)].expert)]++;
    grouped_row_[at(i)] = row;
    input_places_[row] = served[at(i)].row_offset;
  }
  input_places_.to_kernels(num_served);
  gather_rows(base, input_places_.kernels(), num_served, hidden_size_, inputs_.data());
  if (grouped_ && arithmetic_ == ExpertArithmetic::any) {
    grouped_->run(work_, inputs_.data(), hidden_.data(), outputs_.data());
  } else {
    expert_ffn(work_, inputs_.data(), hidden_.data(), outputs_.data());
  }
}

std::int64_t ExpertService::pack_results(std::span<const std::int64_t> served_of_rank, Digest digest) {
  std::int64_t message = 0;  // where it begins
  std::int64_t num_sent = 0;
  for (std::int64_t rank = 0; rank < exchange_->size(); ++rank) {
    const std::int64_t num_rows = served_of_rank[at(rank)];
    headers_.set_sent(rank, {digest, num_rows}, message);
    send_bytes_[at(rank)] = (header_floats + num_rows * hidden_size_) * float_bytes;
    message += header_floats;
    for (const std::int64_t end = num_sent + num_rows; num_sent < end; ++num_sent) {
      output_places_[num_sent] = grouped_row_[at(num_sent)] * hidden_size_;
      message_places_[num_sent] = message;
      message += hidden_size_;
    }
  }
  output_places_.to_kernels(num_sent);
  message_places_.to_kernels(num_sent);
  copy_rows(outputs_.data(), {.offsets = output_places_.kernels()}, send_.data(),
            {.offsets = message_places_.kernels()}, num_sent, hidden_size_);
  headers_.write(send_.data());
  return message;
}

void ExpertService::locate(std::span<const std::int32_t> owned_to_rank, std::span<std::int64_t> offsets) {
  owned_.group(owned_to_rank);
  std::int64_t offset = 0;
  for (std::int64_t round = 0; round < num_rounds_; ++round) {
    const std::int64_t header = round + 1 == num_rounds_ ? header_floats : 0;
    for (std::int64_t rank = 0; rank < exchange_->size(); ++rank) {
      offset += header;
      for (const std::int64_t assignment : owned_.slice(rank, round, num_rounds_)) {
        offsets[at(assignment)] = offset;
        offset += hidden_size_;
      }
    }
  }
}

}  // namespace metro
