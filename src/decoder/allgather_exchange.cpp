#include "decoder/allgather_exchange.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <cstring>

namespace metro {

namespace {

std::int64_t ids_of_record(const ModelSpec& spec, AllgatherExchange::Content content) {
  return content == AllgatherExchange::Content::rows_and_ids ? spec.moe.top_k : 0;
}

}  // namespace

AllgatherExchange::AllgatherExchange(const ModelSpec& spec, Content content, Transport& transport,
                                     std::int64_t max_rows, std::int64_t max_rows_of_all, PhaseClock& clock)
    : hidden_(spec.hidden_size),
      num_ids_(ids_of_record(spec, content)),
      record_floats_(hidden_ + num_ids_),
      transport_(&transport),
      clock_(&clock),
      send_("decode rows to gather", max_rows * record_floats_),
      gathered_("decode rows gathered", max_rows_of_all * record_floats_),
      recv_bytes_(at(transport.size())) {}

std::int64_t AllgatherExchange::planned_bytes(const ModelSpec& spec, Content content, std::int64_t max_rows,
                                              std::int64_t max_rows_of_all) {
  return (max_rows + max_rows_of_all) * (spec.hidden_size + ids_of_record(spec, content)) *
         static_cast<std::int64_t>(sizeof(float));
}

void AllgatherExchange::gather(const RowBatch& batch, const OwnRows& own, std::span<std::int32_t> expert_ids) {
  const std::int64_t num_rows = batch.num_rows();
  METRO_REQUIRE(num_rows * record_floats_ <= send_.size(), "more decode rows than the buffer holds");
  const auto ids_bytes = at(num_ids_) * sizeof(std::int32_t);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    float* record = send_.data() + row * record_floats_;
    std::memcpy(record, own.rows + row * hidden_, at(hidden_) * sizeof(float));
    if (num_ids_ > 0) {
      std::memcpy(record + hidden_, own.expert_ids.data() + row * num_ids_, ids_bytes);
    }
  }
  std::int64_t total_rows = 0;
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    total_rows += batch.rows_of_rank[at(rank)];
    recv_bytes_[at(rank)] = batch.rows_of_rank[at(rank)] * record_floats_ * static_cast<std::int64_t>(sizeof(float));
  }
  METRO_REQUIRE(total_rows * record_floats_ <= gathered_.size(), "more decode rows of all ranks than the buffer holds");
  clock_->lap(Lap::routing);
  transport_->set_phase("dispatch");
  transport_->all_gather(std::as_bytes(send_.span().first(at(num_rows * record_floats_))),
                         std::as_writable_bytes(gathered_.span().first(at(total_rows * record_floats_))), recv_bytes_);
  clock_->lap(Lap::dispatch);
  if (num_ids_ > 0) {
    for (std::int64_t row = 0; row < total_rows; ++row) {
      std::memcpy(expert_ids.data() + row * num_ids_, gathered_.data() + row * record_floats_ + hidden_, ids_bytes);
    }
  }
}

const float* AllgatherExchange::bring(const DecodeRound& round, const OwnRows& /*own*/,
                                      std::vector<ServedAssignment>& served) {
  served.clear();
  for (std::int64_t owner = 0; owner < transport_->size(); ++owner) {
    for (const ServedRow& one : round.routing.served_of(owner, round.idx, round.num_rounds)) {
      served.push_back({one.row * record_floats_, one.expert});
    }
  }
  return gathered_.data();
}

}  // namespace metro
