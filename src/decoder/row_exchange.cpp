#include "decoder/row_exchange.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernels/linear.hpp"

#include <algorithm>

namespace metro {

namespace {

constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));

// A row goes to at most top_k ranks.
std::int64_t most_sent_rows(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows) {
  return max_rows * std::min(spec.moe.top_k, num_ranks);
}

// A row is received once per rank and round. In floats.
std::int64_t send_size(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows) {
  return most_sent_rows(spec, num_ranks, max_rows) * spec.hidden_size + num_ranks * header_floats;
}
std::int64_t recv_size(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_round_rows) {
  return (max_round_rows + num_ranks) * spec.hidden_size + num_ranks * header_floats;
}

}  // namespace

RowExchange::RowExchange(const ModelSpec& spec, DeviceExchange& exchange, std::int64_t max_rows,
                         std::int64_t max_round_rows, PhaseClock& clock)
    : hidden_(spec.hidden_size),
      top_k_(spec.moe.top_k),
      exchange_(&exchange),
      clock_(&clock),
      send_("input rows to send", send_size(spec, exchange.size(), max_rows)),
      recv_("input rows received", recv_size(spec, exchange.size(), max_round_rows)),
      row_places_("places of input rows", most_sent_rows(spec, exchange.size(), max_rows)),
      message_places_("places of input rows in messages", most_sent_rows(spec, exchange.size(), max_rows)),
      headers_("input rows", exchange.size()),
      owned_(exchange.size(), max_rows * spec.moe.top_k),
      send_bytes_(at(exchange.size())),
      recv_bytes_(at(exchange.size())) {
  rows_from_rank_.reserve(at(exchange.size()));
}

std::int64_t RowExchange::num_bytes() const {
  return send_.num_bytes() + recv_.num_bytes() + row_places_.num_bytes() + message_places_.num_bytes() +
         headers_.num_bytes();
}

std::int64_t RowExchange::planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows,
                                        std::int64_t max_round_rows) {
  const std::int64_t num_places = 2 * most_sent_rows(spec, num_ranks, max_rows);
  return (send_size(spec, num_ranks, max_rows) + recv_size(spec, num_ranks, max_round_rows)) * float_bytes +
         num_places * static_cast<std::int64_t>(sizeof(std::int64_t)) + MessageHeaders::planned_bytes(num_ranks);
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

std::int64_t RowExchange::pack(const float* rows, std::int64_t round, std::int64_t num_rounds, Digest digest) {
  std::int64_t num_sent = 0;
  std::int64_t message = 0;  // where it begins
  for (std::int64_t rank = 0; rank < exchange_->size(); ++rank) {
    RowNumbers numbers;
    for (const std::int64_t assignment : sent_to(rank, round, num_rounds)) {
      const std::int64_t row = assignment / top_k_;
      const std::int64_t before = numbers.num_rows();
      const std::int64_t place = numbers.place_of(row);
      if (place == before) {  // not there yet
        row_places_[num_sent] = row * hidden_;
        message_places_[num_sent] = message + header_floats + place * hidden_;
        ++num_sent;
      }
    }
    headers_.set_sent(rank, {digest, numbers.num_rows()}, message);
    const std::int64_t floats = header_floats + numbers.num_rows() * hidden_;
    send_bytes_[at(rank)] = floats * float_bytes;
    message += floats;
  }
  row_places_.to_kernels(num_sent);
  message_places_.to_kernels(num_sent);
  copy_rows(rows, {.offsets = row_places_.kernels()}, send_.data(), {.offsets = message_places_.kernels()}, num_sent,
            hidden_);
  headers_.write(send_.data());
  return message;
}

void RowExchange::expect_headers(Digest digest) {
  std::int64_t message = 0;
  for (std::int64_t rank = 0; rank < exchange_->size(); ++rank) {
    const std::int64_t num_rows = rows_from_rank_[at(rank)];
    headers_.set_expected(rank, {digest, num_rows}, message);
    recv_bytes_[at(rank)] = (header_floats + num_rows * hidden_) * float_bytes;
    message += header_floats + num_rows * hidden_;
  }
}

const float* RowExchange::exchange(std::int64_t moe_layer, const float* rows, std::int64_t round,
                                   std::int64_t num_rounds, Digest digest) {
  METRO_REQUIRE(std::ssize(rows_from_rank_) == exchange_->size(), "not every rank was asked for its rows");
  METRO_REQUIRE(expected_floats_ <= recv_.size(), "more input rows than the buffer holds");
  const std::int64_t sent_floats = pack(rows, round, num_rounds, digest);
  expect_headers(digest);
  clock_->lap(Lap::routing);
  exchange_->set_phase("dispatch");
  exchange_->all_to_all(std::as_bytes(std::span(send_.data(), at(sent_floats))), send_bytes_,
                        std::as_writable_bytes(std::span(recv_.data(), at(expected_floats_))), recv_bytes_);
  headers_.require(recv_.data(), moe_layer, exchange_->transport());
  clock_->lap(Lap::dispatch);
  return recv_.data();
}

}  // namespace metro
