#include "decoder/ids_exchange.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <cstring>

namespace metro {

namespace {

template <class Id>
void pack_ids(std::span<const std::int32_t> ids, std::byte* packed) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<Id>(ids[i]);
    std::memcpy(packed + i * sizeof(Id), &id, sizeof(Id));
  }
}

template <class Id>
void unpack_ids(const std::byte* packed, std::span<std::int32_t> ids) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Id id;
    std::memcpy(&id, packed + i * sizeof(Id), sizeof(Id));
    ids[i] = static_cast<std::int32_t>(id);
  }
}

}  // namespace

IdsExchange::IdsExchange(const ModelSpec& spec, RowExchange& rows, DeviceExchange& exchange, std::int64_t max_rows,
                         PhaseClock& clock)
    : hidden_(spec.hidden_size),
      top_k_(spec.moe.top_k),
      id_bytes_(id_bytes(spec.moe.num_experts)),
      rows_(&rows),
      transport_(&exchange.transport()),
      clock_(&clock),
      send_(at(max_rows * top_k_ * id_bytes_)),
      gathered_(at(exchange.size() * max_rows * top_k_ * id_bytes_)),
      recv_bytes_(at(exchange.size())) {}

std::int64_t IdsExchange::planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows) {
  return (1 + num_ranks) * max_rows * spec.moe.top_k * id_bytes(spec.moe.num_experts);
}

void IdsExchange::gather(const RowBatch& batch, const OwnRows& own, std::span<std::int32_t> expert_ids) {
  const std::int64_t num_sent = own.num_assignments * id_bytes_;
  METRO_REQUIRE(num_sent <= std::ssize(send_), "more decode rows than the buffer holds");
  std::int64_t num_received = 0;
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    recv_bytes_[at(rank)] = batch.rows_of_rank[at(rank)] * top_k_ * id_bytes_;
    num_received += recv_bytes_[at(rank)];
  }
  METRO_REQUIRE(num_received <= std::ssize(gathered_), "more decode rows of all ranks than the buffer holds");
  const bool is_short = id_bytes_ == 2;
  wait_for_kernels();
  clock_->lap(Lap::compute);
  is_short ? pack_ids<std::uint16_t>(own.host_ids(), send_.data())
           : pack_ids<std::int32_t>(own.host_ids(), send_.data());
  clock_->lap(Lap::routing);
  transport_->set_phase("dispatch of ids");
  transport_->all_gather(std::span(send_).first(at(num_sent)), std::span(gathered_).first(at(num_received)),
                         recv_bytes_);
  clock_->lap(Lap::dispatch);
  is_short ? unpack_ids<std::uint16_t>(gathered_.data(), expert_ids)
           : unpack_ids<std::int32_t>(gathered_.data(), expert_ids);
}

const float* IdsExchange::bring(const DecodeRound& round, const OwnRows& own, std::vector<ServedAssignment>& served) {
  if (round.idx == 0) {
    rows_->group(round.routing.owned_to_rank());
  }
  served.clear();
  rows_->begin_round();
  for (std::int64_t owner = 0; owner < transport_->size(); ++owner) {
    const std::int64_t first = rows_->next_offset();
    RowNumbers numbers;
    for (const ServedRow& one : round.routing.served_of(owner, round.idx, round.num_rounds)) {
      served.push_back({first + numbers.place_of(one.row) * hidden_, one.expert});
    }
    rows_->expect(numbers.num_rows());
  }
  return rows_->exchange(round.moe_layer, own.rows, round.idx, round.num_rounds, round.digest);
}

}  // namespace metro
