// Brings the experts of a rank from one placement to the next: the weights that it lacks come from other ranks or from
// the checkpoint, into the places of experts that it no longer hosts.
//
// From other ranks, layer by layer: a round moves the same range of bytes of every expert that travels in the layer.
// All messages of a round are packed before anything is overwritten, and no later round reads that range again, so a
// layer needs no second copy of any expert and cycles (rank A to B to C to A) need no special order.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "decoder/expert_store.hpp"
#include "kernels/buffer.hpp"
#include "placement/moves.hpp"
#include "placement/placement.hpp"
#include "transport/device_exchange.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metro {

enum class WeightSource { peers, checkpoint };

// Nanoseconds that the slowest rank needs for one expert when all ranks fetch one at the same time.
struct SourceTimes {
  std::int64_t peers_ns = 0;
  std::int64_t checkpoint_ns = 0;
  WeightSource faster() const { return checkpoint_ns < peers_ns ? WeightSource::checkpoint : WeightSource::peers; }
};

class ExpertMover {
 public:
  // All arguments must outlive it, but for `placement`. exchange_bytes bounds what it sends and receives at a time, if
  // that is no less than 64 bytes of each expert that may travel in a layer, and no more than all of them.
  ExpertMover(const WeightReader& checkpoint, ResidentExpertStore& store, DeviceExchange& exchange,
              const Placement& placement, std::int64_t exchange_bytes);

  // Collective, the same arguments on all ranks. The store holds the experts of `now`; afterwards those of `next`, a
  // placement of the same shape. Returns the number of experts that this rank fetched. If the checkpoint cannot be read
  // or is damaged, throws AgreedError(checkpoint) on all ranks; the store is then of no use any more.
  std::int64_t move(const Placement& now, const Placement& next, WeightSource source);

  // Collective. Fetches an expert from both sources a few times and keeps the best time of each; the same answer on all
  // ranks. Without MoE layers, or on one rank, where nothing ever travels, all is 0.
  SourceTimes measure();

  std::int64_t num_bytes() const { return send_.num_bytes() + recv_.num_bytes(); }
  static std::int64_t planned_bytes(const WeightReader& checkpoint, const Placement& placement,
                                    std::int64_t exchange_bytes);

 private:
  void exchange_layer(const Placement& next, std::int64_t moe_layer, std::span<const ExpertMove> moves);
  void exchange_range(std::span<const std::span<std::byte>> sends, std::span<const std::span<std::byte>> receives,
                      std::int64_t begin, std::int64_t length);
  std::int64_t measure_checkpoint(std::span<std::byte> expert);
  std::int64_t measure_peers(std::span<const std::byte> expert);

  const WeightReader* checkpoint_;
  ResidentExpertStore* store_;
  DeviceExchange* exchange_;
  Transport* transport_;                                // of the host
  std::vector<std::int64_t> model_layers_;              // [num_moe_layers]
  Buffer<std::byte> send_, recv_;                       // messages
  std::vector<std::int64_t> num_sends_, num_receives_;  // [num_ranks] experts to and from each rank
  std::vector<std::int64_t> send_bytes_, recv_bytes_;   // [num_ranks]
};

}  // namespace metro
