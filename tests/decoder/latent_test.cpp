// Latent attention in the forward pass: which form a position has, and that nothing else changes a bit of it.
#include "base/integers.hpp"
#include "decoder/decoder.hpp"
#include "support/kernel_memory.hpp"
#include "support/model_fixture.hpp"
#include "transport/device_exchange.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

using metro::at;
using metro::test::ScratchCheckpoint;
using metro::test::SequenceBatch;

namespace {

constexpr std::int64_t prompt_length = 21;
constexpr std::int64_t num_generated = 6;
constexpr std::int64_t length = prompt_length + num_generated;

using Logits = std::vector<std::vector<float>>;  // [sequence][vocab]

bool same_bits(const Logits& a, const Logits& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return a.size() == b.size();
}

double largest_difference(const Logits& a, const Logits& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      largest = std::max(largest, std::abs(static_cast<double>(a[i][j]) - static_cast<double>(b[i][j])));
    }
  }
  return largest;
}

// Two sequences of made-up tokens on one rank, of `length` and of 3 fewer.
class Model {
 public:
  Model(const metro::WeightReader& checkpoint, std::int64_t block_tokens, std::int64_t max_rows)
      : spec_(&checkpoint.spec()),
        transport_(metro::make_self_transport()),
        exchange_(metro::make_device_exchange(*transport_)),
        placement_(metro::place_trivial(spec_->num_moe_layers(), spec_->moe.num_experts, 1, spec_->moe.num_experts)),
        limits_{.max_rows = max_rows,
                .max_decode_rows = 2,
                .max_sampled_rows = 2,
                .max_context = 40,
                .kv_blocks = 80,
                .block_tokens = block_tokens,
                .exchange_bytes = 1 << 20},
        decoder_(checkpoint, {checkpoint, limits_.max_context, metro::Sharing::per_rank, *transport_}, placement_, {},
                 *exchange_, limits_),
        batch_(limits_, *transport_) {
    for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
      std::vector<std::int32_t> tokens;
      for (std::int64_t i = 0; i < length - 3 * sequence; ++i) {
        tokens.push_back(static_cast<std::int32_t>((i * i * 13 + i * 7 + sequence * 31) % spec_->vocab_size));
      }
      batch_.add(tokens);
    }
  }

  metro::Decoder& decoder() { return decoder_; }
  metro::MemoryPlan planned(const metro::WeightReader& checkpoint) const {
    const std::vector<std::int64_t> alone = {1};
    return metro::plan_memory_of_ranks(checkpoint, placement_, limits_, alone).front();
  }

  // Both sequences up to `end` (the second one less 3), from where they are. Logits of their last rows.
  Logits forward(bool decode, std::int64_t end, bool marks_generated) {
    const std::vector<std::int64_t> ends = {end, end - 3};
    metro::RowBatch rows = batch_.rows(decode, done_, ends);
    for (std::size_t row = 0; row < rows.positions.size() && marks_generated; ++row) {
      const std::int64_t prompt = rows.sequences[row] == 0 ? prompt_length : prompt_length - 3;
      rows.is_generated.push_back(rows.positions[row] >= prompt ? 1 : 0);
    }
    done_ = ends;
    const float* const logits = decoder_.forward(rows, nullptr);
    Logits result;
    for (std::int64_t i = 0; i < std::ssize(rows.sampled_rows); ++i) {
      result.push_back(metro::test::host_copy(logits + i * spec_->vocab_size, spec_->vocab_size));
    }
    return result;
  }

 private:
  const metro::ModelSpec* spec_;
  std::unique_ptr<metro::Transport> transport_;
  std::unique_ptr<metro::DeviceExchange> exchange_;
  metro::Placement placement_;
  metro::DecoderLimits limits_;
  metro::Decoder decoder_;
  SequenceBatch batch_;
  std::vector<std::int64_t> done_ = {0, 0};
};

// Prompts in one step, then token by token.
Logits decoded(const metro::WeightReader& checkpoint) {
  Model model(checkpoint, 16, 64);
  Logits logits = model.forward(false, prompt_length, false);
  for (std::int64_t end = prompt_length + 1; end <= length; ++end) {
    logits = model.forward(true, end, false);
  }
  return logits;
}

}  // namespace

TEST_CASE("generated tokens that are replayed in prefill steps give the bits of decoding them, in any chunks") {
  const ScratchCheckpoint file(metro::test::family_folder(GENERATE("deepseek_v3_yarn", "deepseek_v2_lite")));
  const metro::CheckpointReader checkpoint(file.path());
  const Logits expected = decoded(checkpoint);
  const std::int64_t chunk = GENERATE(27, 8, 5);
  const std::int64_t block_tokens = GENERATE(16, 3);
  Model model(checkpoint, block_tokens, 64);

  Logits replayed;
  for (std::int64_t end = 4; end < length; end = std::min(length, end + chunk)) {
    replayed = model.forward(false, std::min(length, end + chunk), true);
  }

  CHECK(same_bits(replayed, expected));
}

TEST_CASE("a position has other bits as part of a prompt than generated, and the same but for rounding") {
  const ScratchCheckpoint file(metro::test::family_folder("deepseek_v3"));
  const metro::CheckpointReader checkpoint(file.path());
  const Logits generated = decoded(checkpoint);
  Model model(checkpoint, 16, 64);

  const Logits prompt = model.forward(false, length, false);

  CHECK(!same_bits(prompt, generated));
  CHECK(largest_difference(prompt, generated) < 2e-5);
}

TEST_CASE("the cache of a token and layer is its latent and one rotated key, as planned") {
  const ScratchCheckpoint file(metro::test::family_folder("deepseek_v3"));
  const metro::CheckpointReader checkpoint(file.path());
  Model model(checkpoint, 16, 64);

  const metro::MemoryPlan held = model.decoder().memory();
  const metro::MemoryPlan planned = model.planned(checkpoint);

  CHECK(held.kv == 3 * 80 * 16 * (36 + 12) * 4);  // layers, blocks, tokens, kv_lora_rank + qk_rope_head_dim, fp32
  CHECK(held.kv == planned.kv);
  CHECK(held.dense == planned.dense);
  CHECK(held.buffers == planned.buffers);
}
