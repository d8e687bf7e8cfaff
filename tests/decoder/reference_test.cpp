// The forward pass against what Hugging Face transformers computes for the embedded model (tests/data/README.md); other
// models are in families_test.cpp.
#include "base/file.hpp"
#include "base/json.hpp"
#include "decoder/decoder.hpp"
#include "support/kernel_memory.hpp"
#include "support/model_fixture.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

using metro::ConvertedWeights;
using metro::test::ScratchCheckpoint;
using nlohmann::json;

namespace {

json read_json(const std::string& path) {
  return metro::parse_json(metro::read_file(path, metro::ExitCode::input), path, metro::ExitCode::input);
}

// One rank, one sequence at a time.
class SingleModel {
 public:
  explicit SingleModel(const std::string& hf_folder, ConvertedWeights weights = ConvertedWeights::stored)
      : checkpoint_(hf_folder, weights),
        reader_(checkpoint_.path()),
        transport_(metro::make_self_transport()),
        exchange_(metro::make_device_exchange(*transport_)),
        placement_(metro::place_trivial(reader_.spec().num_moe_layers(), reader_.spec().moe.num_experts, 1,
                                        reader_.spec().moe.num_experts)),
        limits_{.max_rows = 64,
                .max_sampled_rows = 1,
                .max_context = 128,
                .kv_blocks = 16,
                .block_tokens = 8,
                .exchange_bytes = 1 << 20},
        decoder_(reader_, {reader_, limits_.max_context, metro::Sharing::per_rank, *transport_}, placement_,
                 metro::RoutingSettings{}, *exchange_, limits_) {}

  const metro::ModelSpec& spec() const { return reader_.spec(); }

  // Logits [vocab] after the prompt.
  std::vector<float> prefill(const std::vector<std::int32_t>& prompt) {
    batch_.emplace(limits_, *transport_);
    batch_->add(prompt);
    return forward(false, 0);
  }
  std::vector<float> decode(std::int32_t token) {
    batch_->tokens(0).push_back(token);
    return forward(true, static_cast<std::int64_t>(batch_->tokens(0).size()) - 1);
  }

 private:
  std::vector<float> forward(bool decode, std::int64_t first) {
    const auto end = static_cast<std::int64_t>(batch_->tokens(0).size());
    const float* logits = decoder_.forward(batch_->rows(decode, {first}, {end}), nullptr);
    return metro::test::host_copy(logits, spec().vocab_size);
  }

  ScratchCheckpoint checkpoint_;
  metro::CheckpointReader reader_;
  std::unique_ptr<metro::Transport> transport_;
  std::unique_ptr<metro::DeviceExchange> exchange_;
  metro::Placement placement_;
  metro::DecoderLimits limits_;
  metro::Decoder decoder_;
  std::optional<metro::test::SequenceBatch> batch_;
};

std::int32_t argmax(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double largest_difference(const std::vector<float>& computed, const json& expected) {
  REQUIRE(computed.size() == expected.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < computed.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(computed[i]) - expected[i].get<double>()));
  }
  return largest;
}

// The logits of the OLMoE model after a prompt, with another clip_qkv.
std::vector<float> logits_clipped(const json& clip, const std::vector<std::int32_t>& prompt) {
  const metro::test::ScratchFolder folder;
  for (const auto& file : std::filesystem::directory_iterator(metro::test::family_folder("olmoe"))) {
    if (file.path().filename() != "config.json") {
      std::filesystem::create_symlink(file.path(), folder.path() / file.path().filename());
    }
  }
  json config = read_json(metro::test::family_folder("olmoe") + "/config.json");
  config["clip_qkv"] = clip;
  std::ofstream(folder.file("config.json")) << config;
  return SingleModel(folder.path().string()).prefill(prompt);
}

}  // namespace

TEST_CASE("a clip that no query, key or value reaches changes no bit, and one that they reach does") {
  const std::vector<std::int32_t> prompt{5, 17, 120, 3, 77};
  const std::vector<float> unclipped = logits_clipped(nullptr, prompt);

  CHECK(logits_clipped(1e6, prompt) == unclipped);
  CHECK(logits_clipped(0.1, prompt) != unclipped);
}

TEST_CASE("where values are clipped to next to nothing a token learns nothing from those before it") {
  const std::vector<float> alone = logits_clipped(1e-30, {77});

  CHECK(logits_clipped(1e-30, {5, 17, 120, 3, 77}) == alone);
  CHECK(logits_clipped(nullptr, {5, 17, 120, 3, 77}) != logits_clipped(nullptr, {77}));
}

TEST_CASE("the embedded model gives the first logits and all greedy tokens of transformers on 24 prompts") {
  SingleModel model(metro::test::tiny_folder());
  const json reference = read_json(std::string(METRO_TEST_DATA) + "/tiny/reference.json");
  REQUIRE(reference.at("cases").size() == 24);
  const std::int32_t end_token = model.spec().end_tokens.at(0);

  for (const json& example : reference.at("cases")) {
    CAPTURE(example.at("prompt"));
    std::vector<float> logits = model.prefill(example.at("prompt_ids"));
    CHECK(largest_difference(logits, example.at("first_logits")) < 2e-3);

    std::vector<std::int32_t> tokens;
    while (tokens.size() < 64 && (tokens.empty() || tokens.back() != end_token)) {
      tokens.push_back(argmax(logits));
      logits = model.decode(tokens.back());
    }
    CHECK(tokens == example.at("tokens").get<std::vector<std::int32_t>>());
    CHECK((tokens.back() == end_token ? "stop" : "length") == example.at("finish_reason"));
  }
}

TEST_CASE("the embedded model in int8 keeps most tokens of transformers, and its logits stay near") {
  SingleModel model(metro::test::tiny_folder(), ConvertedWeights::int8);
  const json reference = read_json(std::string(METRO_TEST_DATA) + "/tiny/reference.json");
  double largest = 0.0;
  double squares = 0.0;
  std::int64_t num_logits = 0;
  std::int64_t num_tokens = 0;
  std::int64_t num_same_tokens = 0;
  std::int64_t num_same_cases = 0;

  for (const json& example : reference.at("cases")) {
    std::vector<float> logits = model.prefill(example.at("prompt_ids"));
    largest = std::max(largest, largest_difference(logits, example.at("first_logits")));
    for (std::size_t i = 0; i < logits.size(); ++i) {
      squares += std::pow(static_cast<double>(logits[i]) - example.at("first_logits")[i].get<double>(), 2);
    }
    num_logits += std::ssize(logits);
    // The reference's tokens are fed, so that one other choice does not change all that follow.
    const auto expected = example.at("tokens").get<std::vector<std::int32_t>>();
    std::int64_t num_same = 0;
    for (const std::int32_t token : expected) {
      num_same += argmax(logits) == token ? 1 : 0;
      logits = model.decode(token);
    }
    num_tokens += std::ssize(expected);
    num_same_tokens += num_same;
    num_same_cases += num_same == std::ssize(expected) ? 1 : 0;
  }

  // docs/numerics.md quotes these numbers. Tokens are the same on every machine, so their counts are exact.
  CHECK(largest < 1.6);
  CHECK(std::sqrt(squares / static_cast<double>(num_logits)) < 0.14);
  CHECK(num_tokens == 968);
  CHECK(num_same_tokens == 962);
  CHECK(num_same_cases == 19);
}
