// How the rows of a decode step get to the ranks that serve them: one interface, one class per way. First the experts
// of all rows become known to all ranks, then (DecodeRouting) every rank routes them alike, then the rows come.
#pragma once

#include "base/digest.hpp"
#include "decoder/decode_routing.hpp"
#include "decoder/expert_service.hpp"
#include "decoder/own_rows.hpp"
#include "decoder/row_batch.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// One round of a layer, after routing.
struct DecodeRound {
  const DecodeRouting& routing;
  std::int64_t moe_layer = 0;
  std::int64_t idx = 0, num_rounds = 1;
  Digest digest = 0;  // of the routing
};

class DecodeExchange {
 public:
  virtual ~DecodeExchange() = default;

  // Collective. expert_ids [rows of all ranks * top_k], in rank order: those of own.expert_ids of all ranks. Waits for
  // the kernels, also for what was enqueued before it.
  virtual void gather(const RowBatch& batch, const OwnRows& own, std::span<std::int32_t> expert_ids) = 0;

  // Collective, once per round. Makes the input rows that this rank serves in the round available: `served`, in order
  // of owner rank, with offsets from the result, which is memory of
  // kernels.
  virtual const float* bring(const DecodeRound& round, const OwnRows& own, std::vector<ServedAssignment>& served) = 0;

  virtual std::int64_t num_bytes() const = 0;
};

}  // namespace metro
