#include "decoder/allgather_exchange.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernels/linear.hpp"

#include <algorithm>

namespace metro {

namespace {

std::int64_t ids_of_record(const ModelSpec& spec, AllgatherExchange::Content content) {
  return content == AllgatherExchange::Content::rows_and_ids ? spec.moe.top_k : 0;
}

}  // namespace

AllgatherExchange::AllgatherExchange(const ModelSpec& spec, Content content, DeviceExchange& exchange,
                                     std::int64_t max_rows, std::int64_t max_rows_of_all, PhaseClock& clock)
    : hidden_(spec.hidden_size),
      num_ids_(ids_of_record(spec, content)),
      record_floats_(hidden_ + num_ids_),
      exchange_(&exchange),
      clock_(&clock),
      send_("decode rows to gather", max_rows * record_floats_),
      gathered_("decode rows gathered", max_rows_of_all * record_floats_),
      ids_("decode ids gathered", max_rows_of_all * num_ids_),
      recv_bytes_(at(exchange.size())) {}

std::int64_t AllgatherExchange::planned_bytes(const ModelSpec& spec, Content content, std::int64_t max_rows,
                                              std::int64_t max_rows_of_all) {
  const std::int64_t num_ids = ids_of_record(spec, content);
  return ((max_rows + max_rows_of_all) * (spec.hidden_size + num_ids) + max_rows_of_all * num_ids) *
         static_cast<std::int64_t>(sizeof(float));
}

void AllgatherExchange::pack(const OwnRows& own, std::int64_t num_rows) {
  METRO_REQUIRE(num_rows * record_floats_ <= send_.size(), "more decode rows than the buffer holds");
  copy_rows(own.rows, {.stride = hidden_}, send_.data(), {.stride = record_floats_}, num_rows, hidden_);
  if (num_ids_ > 0) {
    copy_rows(own.expert_ids->kernels(), {.stride = num_ids_}, send_.data() + hidden_, {.stride = record_floats_},
              num_rows, num_ids_);
  }
}

void AllgatherExchange::gather(const RowBatch& batch, const OwnRows& own, std::span<std::int32_t> expert_ids) {
  const std::int64_t num_rows = batch.num_rows();
  pack(own, num_rows);
  std::int64_t total_rows = 0;
  for (std::int64_t rank = 0; rank < exchange_->size(); ++rank) {
    total_rows += batch.rows_of_rank[at(rank)];
    recv_bytes_[at(rank)] = batch.rows_of_rank[at(rank)] * record_floats_ * static_cast<std::int64_t>(sizeof(float));
  }
  METRO_REQUIRE(total_rows * record_floats_ <= gathered_.size(), "more decode rows of all ranks than the buffer holds");
  clock_->lap(Lap::routing);
  exchange_->set_phase("dispatch");
  exchange_->all_gather(std::as_bytes(std::span(send_.data(), at(num_rows * record_floats_))),
                        std::as_writable_bytes(std::span(gathered_.data(), at(total_rows * record_floats_))),
                        recv_bytes_);
  if (num_ids_ > 0) {
    copy_rows(gathered_.data() + hidden_, {.stride = record_floats_}, ids_.kernels(), {.stride = num_ids_}, total_rows,
              num_ids_);
    ids_.to_host(total_rows * num_ids_);
    wait_for_kernels();
    std::copy_n(ids_.host(), total_rows * num_ids_, expert_ids.begin());
  }
  clock_->lap(Lap::dispatch);
}

const float* AllgatherExchange::bring(const DecodeRound& round, const OwnRows& /*own*/,
                                      std::vector<ServedAssignment>& served) {
  served.clear();
  for (std::int64_t owner = 0; owner < exchange_->size(); ++owner) {
    for (const ServedRow& one : round.routing.served_of(owner, round.idx, round.num_rounds)) {
      served.push_back({one.row * record_floats_, one.expert});
    }
  }
  return gathered_.data();
}

}  // namespace metro
