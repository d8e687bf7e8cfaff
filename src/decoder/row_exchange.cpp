#include "decoder/row_exchange.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "decoder/expert_service.hpp"
#include "decoder/message_header.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace metro {

namespace {

constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));

// A row goes to at most top_k ranks, and is received once per rank and round. In floats.
std::int64_t send_size(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows) {
  return max_rows * std::min(spec.moe.top_k, num_ranks) * spec.hidden_size + num_ranks * header_floats;
}
std::int64_t recv_size(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_round_rows) {
  return (max_round_rows + num_ranks) * spec.hidden_size + num_ranks * header_floats;
}

}  // namespace

RowExchange::RowExchange(const ModelSpec& spec, Transport& transport, std::int64_t max_rows,
                         std::int64_t max_round_rows, PhaseClock& clock)
    : hidden_(spec.hidden_size),
      top_k_(spec.moe.top_k),
      transport_(&transport),
      clock_(&clock),
      send_("input rows to send", send_size(spec, transport.size(), max_rows)),
      recv_("input rows received", recv_size(spec, transport.size(), max_round_rows)),
      owned_(transport.size(), max_rows * spec.moe.top_k),
      send_bytes_(at(transport.size())),
      recv_bytes_(at(transport.size())) {
  rows_from_rank_.reserve(at(transport.size()));
}

std::int64_t RowExchange::planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows,
                                        std::int64_t max_round_rows) {
  return (send_size(spec, num_ranks, max_rows) + recv_size(spec, num_ranks, max_round_rows)) * float_bytes;
}

void RowExchange::begin_round() {
  rows_from_rank_.clear();
  expected_floats_ = 0;
}

std::int64_t RowExchange::next_offset() const {
  return expected_floats_ + header_floats;
}

void RowExchange::expect(std::int64_t num_rows) {
  rows_from_rank_.push_back(num_rows);
  expected_floats_ += header_floats + num_rows * hidden_;
}

void RowExchange::pack(const float* rows, std::int64_t round, std::int64_t num_rounds, Digest digest) {
  float* message = send_.data();
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    RowNumbers numbers;
    for (const std::int64_t assignment : sent_to(rank, round, num_rounds)) {
      const std::int64_t row = assignment / top_k_;
      const std::int64_t before = numbers.num_rows();
      const std::int64_t place = numbers.place_of(row);
      if (place == before) {  // not there yet
        std::memcpy(message + header_floats + place * hidden_, rows + row * hidden_, at(hidden_) * sizeof(float));
      }
    }
    write_header({digest, numbers.num_rows()}, message);
    const std::int64_t floats = header_floats + numbers.num_rows() * hidden_;
    send_bytes_[at(rank)] = floats * float_bytes;
    message += floats;
  }
}

const float* RowExchange::exchange(std::int64_t moe_layer, const float* rows, std::int64_t round,
                                   std::int64_t num_rounds, Digest digest) {
  METRO_REQUIRE(std::ssize(rows_from_rank_) == transport_->size(), "not every rank was asked for its rows");
  METRO_REQUIRE(expected_floats_ <= recv_.size(), "more input rows than the buffer holds");
  pack(rows, round, num_rounds, digest);
  std::transform(rows_from_rank_.begin(), rows_from_rank_.end(), recv_bytes_.begin(),
                 [this](std::int64_t num_rows) { return (header_floats + num_rows * hidden_) * float_bytes; });
  const std::int64_t sent = std::accumulate(send_bytes_.begin(), send_bytes_.end(), std::int64_t{0});
  clock_->lap(Lap::routing);
  transport_->set_phase("dispatch");
  transport_->all_to_all(std::as_bytes(send_.span()).first(at(sent)), send_bytes_,
                         std::as_writable_bytes(recv_.span().first(at(expected_floats_))), recv_bytes_);
  clock_->lap(Lap::dispatch);
  const float* message = recv_.data();
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    require_header(message, {digest, rows_from_rank_[at(rank)]}, moe_layer, rank, *transport_);
    message += header_floats + rows_from_rank_[at(rank)] * hidden_;
  }
  return recv_.data();
}

}  // namespace metro
