// A model converted from a Hugging Face folder into a scratch checkpoint, and a forward pass over whole sequences
// without scheduler or requests.
#pragma once

#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/convert.hpp"
#include "decoder/decoder.hpp"
#include "support/scratch_folder.hpp"
#include "transport/agree.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace metro::test {

class ScratchCheckpoint {
 public:
  explicit ScratchCheckpoint(const std::string& hf_folder, ConvertedWeights weights = ConvertedWeights::stored)
      : path_(folder_.file("model.h5")) {
    convert_checkpoint(hf_folder, path_, false, {}, weights);
  }
  const std::string& path() const { return path_; }

 private:
  ScratchFolder folder_;
  std::string path_;
};

inline std::string family_folder(const std::string& name) {
  return std::string(METRO_TEST_DATA) + "/families/" + name;
}
inline std::string tiny_folder() {
  return std::string(METRO_SOURCE_DIR) + "/inputs/models/tiny";
}

// Sequences of this rank, sequence i with its own KV blocks, fed in any portions. All ranks call the same methods.
class SequenceBatch {
 public:
  // rope_switch_at: RopeSpec::switch_at of the model. A sequence that grows beyond it must be fed again from the start.
  SequenceBatch(const DecoderLimits& limits, Transport& transport, std::int64_t rope_switch_at = 0)
      : limits_(limits), transport_(&transport), rope_switch_at_(rope_switch_at) {}

  void add(std::vector<std::int32_t> tokens) { sequences_.push_back(std::move(tokens)); }
  std::vector<std::int32_t>& tokens(std::size_t sequence) { return sequences_[sequence]; }
  std::size_t size() const { return sequences_.size(); }

  // Rows first[i] .. end[i] - 1 of each own sequence; the logits of each last row are wanted.
  RowBatch rows(bool decode, const std::vector<std::int64_t>& first, const std::vector<std::int64_t>& end) {
    RowBatch batch;
    batch.decode = decode;
    batch.step = step_++;
    batch.max_blocks = (limits_.max_context + limits_.block_tokens - 1) / limits_.block_tokens;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      for (std::int64_t block = 0; block < batch.max_blocks; ++block) {
        // Blocks in descending order, so that nothing works only because they happen to ascend.
        const auto num_sequences = static_cast<std::int64_t>(sequences_.size());
        batch.block_tables.push_back(static_cast<std::int32_t>(
            num_sequences * batch.max_blocks - 1 - (static_cast<std::int64_t>(i) * batch.max_blocks + block)));
      }
      for (std::int64_t position = first[i]; position < end[i]; ++position) {
        batch.token_ids.push_back(sequences_[i][static_cast<std::size_t>(position)]);
        batch.positions.push_back(static_cast<std::int32_t>(position));
        batch.sequences.push_back(static_cast<std::int32_t>(i));
        if (rope_switch_at_ > 0) {
          const bool is_long = std::ssize(sequences_[i]) > rope_switch_at_;
          batch.rope_rows.push_back(static_cast<std::int32_t>(position + (is_long ? limits_.max_context : 0)));
        }
      }
      if (first[i] < end[i]) {
        batch.sampled_rows.push_back(static_cast<std::int32_t>(batch.token_ids.size()) - 1);
      }
    }
    batch.rows_of_rank = gather_integers(*transport_, batch.num_rows());
    return batch;
  }

 private:
  DecoderLimits limits_;
  Transport* transport_;
  std::int64_t rope_switch_at_;
  std::vector<std::vector<std::int32_t>> sequences_;
  std::int64_t step_ = 0;
};

}  // namespace metro::test
