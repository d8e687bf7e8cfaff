#include "cli/plan_memory.hpp"

#include "base/file.hpp"
#include "bench/random_weights.hpp"
#include "checkpoint/checkpoint_reader.hpp"
#include "cli/standard_output.hpp"
#include "deck/deck.hpp"
#include "engine/memory_fit.hpp"
#include "model/family.hpp"
#include "model/quantization.hpp"
#include "report/run_report.hpp"

#include <fmt/format.h>

#include <utility>

namespace metro {

namespace {

constexpr std::int64_t giga = 1'000'000'000;

// What a run would be told of context, batch and KV cache.
Deck deck_of(const PlanOptions& options) {
  std::vector<std::string> lines{"model.checkpoint=\"planned\"", "requests.input=\"planned\"",
                                 "output.directory=\"planned\"",
                                 fmt::format("experts.replication={}", options.replication),
                                 fmt::format("experts.slots_per_rank={}", options.slots_per_rank)};
  lines.insert(lines.end(), options.overrides.begin(), options.overrides.end());
  return parse_deck("", "plan", lines);
}

std::string gigabytes(std::int64_t num_bytes) {
  return fmt::format("{:.1f}", static_cast<double>(num_bytes) / static_cast<double>(giga));
}

std::string row_of(std::int64_t gpu_gigabytes, const MemoryFit& fit) {
  return fmt::format("{:>6} {:>6} {:>6} {:>8} {:>9} {:>10} {:>9} {:>8} {:>13}\n", gpu_gigabytes, fit.num_ranks,
                     fit.slots_per_rank, gigabytes(fit.memory.dense), gigabytes(fit.memory.experts),
                     gigabytes(fit.memory.kv), gigabytes(fit.memory.buffers), gigabytes(fit.memory.total()),
                     fit.kv_tokens);
}

std::int64_t total_bytes(const WeightReader& weights) {
  std::int64_t num_bytes = 0;
  for (const auto& [name, tensor] : weights.tensors()) {
    num_bytes += tensor.num_bytes();
  }
  return num_bytes;
}

std::string head_of(const WeightReader& weights, const Deck& deck) {
  const ModelSpec& spec = weights.spec();
  const std::int64_t token_bytes = kv_bytes_per_block(spec, 1);
  const std::int64_t context = deck.model.max_context > 0 ? deck.model.max_context : spec.max_positions;
  return fmt::format(
      "model       {}: {} layers, {} with {} experts; weights {}\n"
      "KV cache    {} bytes per token and layer, {} per token; {} for a sequence of {} tokens (model.max_context)\n"
      "batch       up to {} sequences and {} prompt tokens per rank and step; replication {}\n\n"
      "A rank per GPU; nine tenths of a GPU are for metro, the rest for driver, MPI and NCCL. Fits: the KV cache holds "
      "one\nsequence at least. In GB (10^9 bytes), of a rank:\n"
      "   GPU   GPUs  slots    dense   experts   KV cache   buffers    total  tokens in KV\n",
      spec.family, spec.num_layers, spec.num_moe_layers(), spec.moe.num_experts, human_bytes(total_bytes(weights)),
      token_bytes / spec.num_layers, human_bytes(token_bytes), human_bytes(token_bytes * context), context,
      deck.batch.max_sequences_per_rank, deck.batch.prefill_chunk, deck.experts.replication);
}

}  // namespace

std::unique_ptr<WeightReader> named_model(const std::string& path) {
  if (!path.ends_with(".json")) {
    return std::make_unique<CheckpointReader>(path);
  }
  try {
    const std::string config = read_file(path, ExitCode::checkpoint);
    const PublishedTypes published(config);
    return std::make_unique<RandomWeights>(
        parse_model_spec(config, std::nullopt),
        [&published](const TensorSource& source) { return published.converted_type_of(source); });
  } catch (const Error& error) {
    throw Error(error.exit_code(), fmt::format("--model {}: {}", path, error.what()));
  }
}

void plan_memory(const PlanOptions& options) {
  const Deck deck = deck_of(options);
  const std::unique_ptr<WeightReader> weights = named_model(options.model_path);
  std::string text = head_of(*weights, deck);
  for (const std::int64_t gpu_gigabytes : options.gpu_gigabytes) {
    const std::int64_t most = weights->spec().moe.num_experts;  // with more, ranks would have no expert to hold
    const auto fit = options.num_ranks > 0 ? memory_fit(deck, *weights, options.num_ranks, gpu_gigabytes * giga)
                                           : fewest_ranks(deck, *weights, gpu_gigabytes * giga, most);
    if (fit) {
      text += row_of(gpu_gigabytes, *fit);
    } else if (options.num_ranks > 0) {
      text += fmt::format("{:>6} does not fit on {}\n", gpu_gigabytes, options.num_ranks);
    } else {
      text +=
          fmt::format("{:>6} does not fit on any number: every rank holds {} GB beside its experts and the KV cache\n",
                      gpu_gigabytes, gigabytes(DenseWeights::planned_bytes(*weights)));
    }
  }
  print_to_stdout(text);
}

}  // namespace metro
