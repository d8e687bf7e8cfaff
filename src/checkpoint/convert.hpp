// `metro convert`: a Hugging Face folder in, one checkpoint file out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// How a checkpoint holds the weights of experts, projections and dense MLPs; all others stay as they are.
enum class ConvertedWeights {
  stored,  // as in the folder
  int8,    // bf16, fp16 and fp32 as int8 with one scale per output channel (checkpoint/quantise.hpp)
  bf16,    // fp8 and mxfp4 as bf16, other types as in the folder
};

// "stored", "int8", "bf16". Throws Error(usage) for another name.
ConvertedWeights converted_weights_of(std::string_view name);

struct ConvertProgress {
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;
  std::string tensor;  // dataset being written
};

struct ConvertSummary {
  std::int64_t num_tensors = 0;
  std::int64_t num_bytes = 0;      // tensor bytes written
  std::vector<std::string> notes;  // what was changed or left out (fp16 widened to fp32, tensors not used, ...)
};

// Streams every tensor of the folder (model.safetensors, or shards by model.safetensors.index.json) into `output`,
// with a few MiB of memory. Writes to "<output>.partial-<pid>" and renames at the end; an
// existing `output` is replaced only when `overwrite`. bf16, fp32, and of linear layers fp8 and mxfp4, are kept
// as stored; fp16, and fp8 elsewhere, are widened to fp32 (exact); `weights` may ask for another type. Throws
// Error(checkpoint) for anything wrong with the folder (file, tensor and expectation named), Error(usage) when the
// output exists or cannot be written, or for `weights` that make no sense for the folder, Error(machine) when the disk
// is full. `chunk_bytes` (a multiple of 4) is how much of a tensor is in memory at a time, or one row of a tensor that
// changes its type or has scales, or one matrix of a tensor that lies in another order in the folder.
ConvertSummary convert_checkpoint(const std::string& hf_folder, const std::string& output, bool overwrite,
                                  const std::function<void(const ConvertProgress&)>& progress,
                                  ConvertedWeights weights = ConvertedWeights::stored,
                                  std::int64_t chunk_bytes = std::int64_t{8} << 20);

}  // namespace metro
