#include "decoder/expert_service.hpp"

#include "base/error.hpp"
#include "kernels/linear.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace metro {

namespace {

constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

std::int64_t ExpertService::bytes_per_row(const ModelSpec& spec) {
  // input, output, message of results and, in prefill, the received row
  return (4 * spec.hidden_size + spec.moe.intermediate_size) * float_bytes;
}

ExpertService::ExpertService(const ModelSpec& spec, ExpertStore& store, Transport& transport, std::int64_t max_served,
                             std::int64_t max_owned, std::int64_t exchange_bytes, PhaseClock& clock)
    : hidden_size_(spec.hidden_size),
      store_(&store),
      transport_(&transport),
      clock_(&clock),
      max_round_rows_(
          std::clamp<std::int64_t>(exchange_bytes / bytes_per_row(spec), 1, std::max<std::int64_t>(max_served, 1))) {
  const std::int64_t num_ranks = transport.size();
  // Rounding slices up costs at most one row per owner.
  const std::int64_t rows = max_round_rows_ + num_ranks;
  inputs_ = Buffer<float>("expert inputs", rows * spec.hidden_size);
  hidden_ = Buffer<float>("expert hidden", rows * spec.moe.intermediate_size);
  outputs_ = Buffer<float>("expert outputs", rows * spec.hidden_size);
  send_ = Buffer<float>("expert results to send", rows * spec.hidden_size + num_ranks * header_floats);
  const std::int64_t most_rounds = ceil_div(std::max<std::int64_t>(max_served, 1), max_round_rows_);
  results_ = Buffer<float>("expert results", max_owned * spec.hidden_size + most_rounds * num_ranks * header_floats);
  first_row_.resize(at(spec.moe.num_experts + 1));
  grouped_row_.reserve(at(rows));
  gather_offsets_.reserve(at(rows));
  work_.reserve(at(spec.moe.num_experts));
  send_bytes_.resize(at(num_ranks));
  recv_bytes_.resize(at(num_ranks));
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
  round_base_.assign(1, 0);
  for (std::int64_t round = 0; round < num_rounds; ++round) {
    std::int64_t floats = 0;
    for (const std::int64_t count : owned_by_rank_) {
      floats += header_floats + slice_size(count, round, num_rounds) * hidden_size_;
    }
    round_base_.push_back(round_base_.back() + floats);
  }
  METRO_REQUIRE(round_base_.back() <= results_.size(), "result buffer too small");
}

void ExpertService::serve_round(std::int64_t moe_layer, std::int64_t round, std::span<const ServedAssignment> served,
                                std::span<const std::int64_t> served_of_rank, const float* base, Digest digest) {
  clock_->lap(Lap::routing);
  compute(moe_layer, served, base);
  clock_->lap(Lap::experts);
  pack_results(served_of_rank, digest);
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    const std::int64_t rows = slice_size(owned_by_rank_[at(rank)], round, num_rounds_);
    recv_bytes_[at(rank)] = (header_floats + rows * hidden_size_) * float_bytes;
  }
  const std::int64_t sent = std::accumulate(send_bytes_.begin(), send_bytes_.end(), std::int64_t{0});
  float* received = results_.data() + round_base_[at(round)];
  const std::int64_t received_floats = round_base_[at(round + 1)] - round_base_[at(round)];
  clock_->lap(Lap::routing);
  transport_->set_phase("combine");
  transport_->all_to_all(std::as_bytes(send_.span()).first(at(sent)), send_bytes_,
                         std::as_writable_bytes(std::span(received, at(received_floats))), recv_bytes_);
  clock_->lap(Lap::combine);
  check_headers(moe_layer, round, received, digest);
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
    const ResultHeader header{digest, num_rows};
    std::memcpy(message, &header, sizeof(header));
    gather_rows(outputs_.data(), offsets, num_rows, hidden_size_, message + header_floats);
    send_bytes_[at(rank)] = (header_floats + num_rows * hidden_size_) * float_bytes;
    message += header_floats + num_rows * hidden_size_;
    offsets += num_rows;
  }
}

void ExpertService::check_headers(std::int64_t moe_layer, std::int64_t round, const float* received,
                                  Digest digest) const {
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    ResultHeader header;
    std::memcpy(&header, received, sizeof(header));
    const std::int64_t expected = slice_size(owned_by_rank_[at(rank)], round, num_rounds_);
    if (header.digest != digest || header.num_rows != expected) {
      throw Error(
          ExitCode::internal,
          fmt::format("ranks {} and {} disagree about the routing of MoE layer {}: digest {} and {}, {} and {} rows",
                      transport_->rank(), rank, moe_layer, to_hex(digest), to_hex(header.digest), expected,
                      header.num_rows));
    }
    received += header_floats + expected * hidden_size_;
  }
}

void ExpertService::locate(std::span<const std::int32_t> owned_to_rank, std::span<std::int64_t> offsets) const {
  const auto num_ranks = static_cast<std::int64_t>(owned_by_rank_.size());
  // Per rank: round of its next result, results left in that round, and where the next one lies.
  std::vector<std::int64_t> round(at(num_ranks), -1), left(at(num_ranks), 0), next(at(num_ranks), 0);
  std::vector<std::int64_t> message_base(at(num_rounds_ * num_ranks));
  for (std::int64_t i = 0; i < num_rounds_; ++i) {
    std::int64_t base = round_base_[at(i)];
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      message_base[at(i * num_ranks + rank)] = base + header_floats;
      base += header_floats + slice_size(owned_by_rank_[at(rank)], i, num_rounds_) * hidden_size_;
    }
  }
  for (std::size_t i = 0; i < owned_to_rank.size(); ++i) {
    const std::size_t rank = at(owned_to_rank[i]);
    while (left[rank] == 0) {
      ++round[rank];
      left[rank] = slice_size(owned_by_rank_[rank], round[rank], num_rounds_);
      next[rank] = message_base[at(round[rank] * num_ranks) + rank];
    }
    offsets[i] = next[rank];
    next[rank] += hidden_size_;
    --left[rank];
  }
}

}  // namespace metro
