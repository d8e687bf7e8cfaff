#include "decoder/expert_service.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernels/linear.hpp"

#include <algorithm>
#include <numeric>

namespace metro {

namespace {

constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));

}  // namespace

ExpertService::Sizes ExpertService::sizes(const ModelSpec& spec, std::int64_t num_ranks, const DecoderLimits& limits) {
  const std::int64_t hidden = spec.hidden_size;
  // Input, output, message of results and, in prefill, the received row.
  const std::int64_t bytes_per_row = (4 * hidden + spec.moe.intermediate_size) * float_bytes;
  const std::int64_t max_owned = limits.max_rows * spec.moe.top_k;
  const std::int64_t max_served = std::max<std::int64_t>(1, num_ranks * max_owned);
  Sizes sizes;
  sizes.round_rows = std::clamp<std::int64_t>(limits.exchange_bytes / bytes_per_row, 1, max_served);
  // Rounding slices up costs at most one row per owner.
  const std::int64_t rows = sizes.round_rows + num_ranks;
  sizes.inputs = rows * hidden;
  sizes.hidden = rows * spec.moe.intermediate_size;
  sizes.outputs = rows * hidden;
  sizes.send = rows * hidden + num_ranks * header_floats;
  // Only the last round's messages still have their headers.
  sizes.results = max_owned * hidden + num_ranks * header_floats;
  return sizes;
}

ExpertService::ExpertService(const ModelSpec& spec, ExpertStore& store, Transport& transport,
                             const DecoderLimits& limits, PhaseClock& clock)
    : hidden_size_(spec.hidden_size),
      store_(&store),
      transport_(&transport),
      clock_(&clock),
      owned_(transport.size(), limits.max_rows * spec.moe.top_k) {
  const Sizes planned = sizes(spec, transport.size(), limits);
  max_round_rows_ = planned.round_rows;
  inputs_ = Buffer<float>("expert inputs", planned.inputs);
  hidden_ = Buffer<float>("expert hidden", planned.hidden);
  outputs_ = Buffer<float>("expert outputs", planned.outputs);
  send_ = Buffer<float>("expert results to send", planned.send);
  results_ = Buffer<float>("expert results", planned.results);
  const std::size_t rows = at(planned.round_rows + transport.size());
  first_row_.resize(at(spec.moe.num_experts + 1));
  grouped_row_.reserve(rows);
  gather_offsets_.reserve(rows);
  work_.reserve(at(spec.moe.num_experts));
  send_bytes_.resize(at(transport.size()));
  recv_bytes_.resize(at(transport.size()));
}

std::int64_t ExpertService::num_bytes() const {
  return inputs_.num_bytes() + hidden_.num_bytes() + outputs_.num_bytes() + send_.num_bytes() + results_.num_bytes();
}

std::int64_t ExpertService::num_rounds(std::int64_t most_served) const {
  return std::max<std::int64_t>(1, ceil_div(most_served, max_round_rows_));
}

void ExpertService::begin(std::span<const std::int64_t> owned_by_rank, std::int64_t num_rounds) {
  owned_by_rank_.assign(owned_by_rank.begin(), owned_by_rank.end());
  num_rounds_ = num_rounds;
  rows_before_ = 0;
  const std::int64_t num_owned = std::accumulate(owned_by_rank_.begin(), owned_by_rank_.end(), std::int64_t{0});
  METRO_REQUIRE(num_owned * hidden_size_ + std::ssize(owned_by_rank_) * header_floats <= results_.size(),
                "result buffer too small");
}

void ExpertService::serve_round(std::int64_t moe_layer, std::int64_t round, std::span<const ServedAssignment> served,
                                std::span<const std::int64_t> served_of_rank, const float* base, Digest digest) {
  clock_->lap(Lap::routing);
  transport_->set_phase("experts");
  compute(moe_layer, served, base);
  clock_->lap(Lap::experts);
  pack_results(served_of_rank, digest);
  if (round > 0) {
    drop_headers(round - 1);
  }
  std::int64_t received_floats = 0;
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    const std::int64_t rows = slice_size(owned_by_rank_[at(rank)], round, num_rounds_);
    recv_bytes_[at(rank)] = (header_floats + rows * hidden_size_) * float_bytes;
    received_floats += header_floats + rows * hidden_size_;
  }
  const std::int64_t sent = std::accumulate(send_bytes_.begin(), send_bytes_.end(), std::int64_t{0});
  float* received = results_.data() + rows_before_ * hidden_size_;
  clock_->lap(Lap::routing);
  transport_->set_phase("combine");
  transport_->all_to_all(std::as_bytes(send_.span()).first(at(sent)), send_bytes_,
                         std::as_writable_bytes(std::span(received, at(received_floats))), recv_bytes_);
  clock_->lap(Lap::combine);
  transport_->set_phase("attention and dense layers");
  check_headers(moe_layer, round, received, digest);
}

// Moves the rows of a round together, so that the next round can follow them: with many ranks and rounds the headers
// would take more room than the rows.
void ExpertService::drop_headers(std::int64_t round) {
  float* to = results_.data() + rows_before_ * hidden_size_;
  const float* from = to;
  for (const std::int64_t count : owned_by_rank_) {
    from += header_floats;
    const std::int64_t num_rows = slice_size(count, round, num_rounds_);
    to = std::copy_n(from, num_rows * hidden_size_, to);
    from += num_rows * hidden_size_;
    rows_before_ += num_rows;
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
  gather_offsets_.resize(at(num_served));
  for (std::int64_t i = 0; i < num_served; ++i) {
    const std::int64_t row = first_row_[at(served[at(i)].expert)]++;
    grouped_row_[at(i)] = row;
    gather_offsets_[at(row)] = served[at(i)].row_offset;
  }
  gather_rows(base, gather_offsets_.data(), num_served, hidden_size_, inputs_.data());
  expert_ffn(work_, inputs_.data(), hidden_.data(), outputs_.data());
}

void ExpertService::pack_results(std::span<const std::int64_t> served_of_rank, Digest digest) {
  std::transform(grouped_row_.begin(), grouped_row_.end(), gather_offsets_.begin(),
                 [this](std::int64_t row) { return row * hidden_size_; });
  float* message = send_.data();
  const std::int64_t* offsets = gather_offsets_.data();
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    const std::int64_t num_rows = served_of_rank[at(rank)];
    write_header({digest, num_rows}, message);
    gather_rows(outputs_.data(), offsets, num_rows, hidden_size_, message + header_floats);
    send_bytes_[at(rank)] = (header_floats + num_rows * hidden_size_) * float_bytes;
    message += header_floats + num_rows * hidden_size_;
    offsets += num_rows;
  }
}

void ExpertService::check_headers(std::int64_t moe_layer, std::int64_t round, const float* received,
                                  Digest digest) const {
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    const std::int64_t expected = slice_size(owned_by_rank_[at(rank)], round, num_rounds_);
    require_header(received, {digest, expected}, moe_layer, rank, *transport_);
    received += header_floats + expected * hidden_size_;
  }
}

void ExpertService::locate(std::span<const std::int32_t> owned_to_rank, std::span<std::int64_t> offsets) {
  owned_.group(owned_to_rank);
  std::int64_t offset = 0;
  for (std::int64_t round = 0; round < num_rounds_; ++round) {
    const std::int64_t header = round + 1 == num_rounds_ ? header_floats : 0;
    for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
      offset += header;
      for (const std::int64_t assignment : owned_.slice(rank, round, num_rounds_)) {
        offsets[at(assignment)] = offset;
        offset += hidden_size_;
      }
    }
  }
}

}  // namespace metro
