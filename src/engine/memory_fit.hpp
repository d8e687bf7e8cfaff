// On how many GPUs a model fits: the memory plan of a job that is not running, for any number of ranks.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "deck/deck.hpp"
#include "decoder/decoder.hpp"

#include <cstdint>
#include <optional>

namespace metro {

// Of the memory of a GPU, what a rank may take: the rest is for driver, CUDA context, MPI and NCCL.
inline constexpr double usable_share = 0.9;

struct MemoryFit {
  std::int64_t num_ranks = 0;
  std::int64_t slots_per_rank = 0;
  MemoryPlan memory;           // of the rank that needs most; with the KV cache that a run would take
  std::int64_t kv_tokens = 0;  // positions that the KV cache of a rank holds
};

// A job of num_ranks ranks, one on each GPU of gpu_bytes, with what the deck says of context, batch, replication, KV
// cache and exchange. `weights` need not be readable: names, types and shapes of its tensors count. Nothing if it does
// not fit, as in a run: the KV cache must hold one sequence of model.max_context. Throws Error(usage) for a context
// that the model does not have.
std::optional<MemoryFit> memory_fit(const Deck& deck, const WeightReader& weights, std::int64_t num_ranks,
                                    std::int64_t gpu_bytes);

// With the fewest ranks, at most most_ranks.
std::optional<MemoryFit> fewest_ranks(const Deck& deck, const WeightReader& weights, std::int64_t gpu_bytes,
                                      std::int64_t most_ranks);

}  // namespace metro
