// On how many GPUs a model fits, with the published sizes of real models.
#include "engine/memory_fit.hpp"

#include "base/file.hpp"
#include "bench/random_weights.hpp"
#include "model/family.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <string>

using metro::fewest_ranks;
using metro::memory_fit;

namespace {

constexpr std::int64_t giga = 1'000'000'000;

metro::RandomWeights published(const std::string& name) {
  const std::string path = std::string(METRO_TEST_DATA) + "/models/" + name + ".json";
  return {metro::parse_model_spec(metro::read_file(path, metro::ExitCode::checkpoint), std::nullopt),
          metro::StoredType::bf16};
}

metro::Deck deck_with(std::vector<std::string> overrides) {
  for (const char* key : {"model.checkpoint", "requests.input", "output.directory"}) {
    overrides.push_back(std::string(key) + "=\"x\"");
  }
  return metro::parse_deck("", "test", overrides);
}

}  // namespace

TEST_CASE("a model fits on the fewest GPUs, and on one fewer it does not") {
  const metro::RandomWeights weights = published("Qwen--Qwen3-235B-A22B_config");
  const metro::Deck deck = deck_with({"model.max_context=8192"});
  const std::int64_t gigabytes = GENERATE(40, 80, 141, 192);
  CAPTURE(gigabytes);

  const auto fit = fewest_ranks(deck, weights, gigabytes * giga, 128);

  REQUIRE(fit);
  CHECK(fit->memory.total() <= gigabytes * giga * 9 / 10);
  CHECK(fit->kv_tokens >= 8192);
  CHECK_FALSE(memory_fit(deck, weights, fit->num_ranks - 1, gigabytes * giga));
}

TEST_CASE("the experts of a rank take what their three matrices take") {
  const metro::RandomWeights weights = published("Qwen--Qwen3-30B-A3B_config");
  const metro::Deck deck = deck_with({"experts.replication=1.25"});

  const auto fit = memory_fit(deck, weights, 4, 80 * giga);

  REQUIRE(fit);
  CHECK(fit->slots_per_rank == 40);
  CHECK(fit->memory.experts == std::int64_t{48} * 40 * 3 * 2048 * 768 * 2);
  CHECK(fit->memory.kv == fit->kv_tokens * 48 * 2 * 4 * 128 * 4);
}

TEST_CASE("what every rank holds beside its experts may be too much for any number of GPUs") {
  const metro::RandomWeights weights = published("Qwen--Qwen3-235B-A22B_config");

  CHECK_FALSE(fewest_ranks(deck_with({}), weights, 16 * giga, 128));
}

TEST_CASE("a KV cache that was asked for is part of what has to fit") {
  const metro::RandomWeights weights = published("Qwen--Qwen3-30B-A3B_config");

  const auto fit =
      fewest_ranks(deck_with({"kv.memory=20000000000", "model.max_context=4096"}), weights, 40 * giga, 128);

  REQUIRE(fit);
  CHECK(fit->memory.kv <= 20 * giga);
  CHECK(fit->memory.total() <= 36 * giga);
  CHECK_FALSE(fewest_ranks(deck_with({"kv.memory=36000000000", "model.max_context=8192"}), weights, 40 * giga, 128));
}

TEST_CASE("a context that the model was not made for is refused") {
  const metro::RandomWeights weights = published("Qwen--Qwen3-30B-A3B_config");

  metro::test::expect_error(metro::ExitCode::usage, {"model.max_context = 50000", "at most 40960"},
                            [&] { fewest_ranks(deck_with({"model.max_context=50000"}), weights, 80 * giga, 8); });
}
