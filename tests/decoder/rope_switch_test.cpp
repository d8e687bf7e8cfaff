// A model with two sets of angles: a sequence that outgrows the first one is computed anew with the second.
#include "base/file.hpp"
#include "base/json.hpp"
#include "decoder/decoder.hpp"
#include "support/kernel_memory.hpp"
#include "support/model_fixture.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>

namespace {

constexpr std::int64_t switch_at = 32;  // of phimoe_longrope

// One rank, one sequence.
class LongropeModel {
 public:
  LongropeModel()
      : checkpoint_(metro::test::family_folder("phimoe_longrope")),
        reader_(checkpoint_.path()),
        decoder_(reader_, {reader_, limits_.max_context, metro::Sharing::per_rank, *transport_},
                 metro::place_trivial(reader_.spec().num_moe_layers(), reader_.spec().moe.num_experts, 1,
                                      reader_.spec().moe.num_experts),
                 {}, *exchange_, limits_) {}

  const metro::ModelSpec& spec() const { return reader_.spec(); }

  // Of the last of `tokens`, whose positions from `first` on are fed. [vocab]
  std::vector<float> logits(const std::vector<std::int32_t>& tokens, std::int64_t first, std::int64_t switches_at) {
    metro::test::SequenceBatch batch(limits_, *transport_, switches_at);
    batch.add(tokens);
    const auto end = static_cast<std::int64_t>(tokens.size());
    const float* const logits = decoder_.forward(batch.rows(end - first == 1, {first}, {end}), nullptr);
    return metro::test::host_copy(logits, spec().vocab_size);
  }

 private:
  static constexpr metro::DecoderLimits limits_ = {.max_rows = 64,
                                                   .max_sampled_rows = 1,
                                                   .max_context = 64,
                                                   .kv_blocks = 8,
                                                   .block_tokens = 8,
                                                   .exchange_bytes = 1 << 20};
  metro::test::ScratchCheckpoint checkpoint_;
  metro::CheckpointReader reader_;
  std::unique_ptr<metro::Transport> transport_ = metro::make_self_transport();
  std::unique_ptr<metro::DeviceExchange> exchange_ = metro::make_device_exchange(*transport_);
  metro::Decoder decoder_;
};

// The 33 tokens that the model was made with.
std::vector<std::int32_t> long_prompt() {
  const std::string path = metro::test::family_folder("phimoe_longrope") + "/reference.json";
  const auto reference =
      metro::parse_json(metro::read_file(path, metro::ExitCode::input), path, metro::ExitCode::input);
  return reference.at("prompts").at(2).at("input_ids");
}

}  // namespace

TEST_CASE("a sequence decoded over the switch, computed anew there, has the state of a prompt of all its tokens") {
  LongropeModel decoded;
  LongropeModel prefilled;
  REQUIRE(decoded.spec().rope.switch_at == switch_at);
  std::vector<std::int32_t> tokens = long_prompt();
  tokens.resize(30);

  std::vector<float> logits = decoded.logits(tokens, 0, switch_at);
  while (tokens.size() < 40) {
    tokens.push_back(static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    const auto length = std::ssize(tokens);
    logits = decoded.logits(tokens, length == switch_at + 1 ? 0 : length - 1, switch_at);

    CAPTURE(length);
    CHECK(logits == prefilled.logits(tokens, 0, switch_at));
  }
}

TEST_CASE("the two sets of angles give different results") {
  LongropeModel model;
  std::vector<std::int32_t> tokens = long_prompt();

  const std::vector<float> of_long = model.logits(tokens, 0, switch_at);
  const std::vector<float> of_short = model.logits(tokens, 0, switch_at + 1);

  CHECK(of_long != of_short);
}
