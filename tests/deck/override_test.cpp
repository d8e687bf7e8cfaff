#include "deck/deck.hpp"
#include "deck/deck_text.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <initializer_list>

using metro::ExitCode;
using metro::test::expect_error;
using metro::test::least_deck;
using Texts = std::vector<std::string>;

namespace {

metro::Deck override_with(const std::vector<std::string>& overrides) {
  return metro::parse_deck(least_deck("[kv]\nblock_tokens = 8\n[experts]\nreplication = 2.0"), "deck.toml", overrides);
}

void expect_refusal(const std::vector<std::string>& overrides, std::initializer_list<const char*> texts) {
  expect_error(ExitCode::usage, texts, [&] { override_with(overrides); });
}

}  // namespace

TEST_CASE("an override replaces what the file says, with its value in TOML syntax") {
  const metro::Deck deck =
      override_with({"kv.block_tokens=32", " batch.prefill_min = 1 ", "kv.memory=1_000_000", "output.directory=\"a b\"",
                     "model.checkpoint='c:\\d'", "exchange.memory=\"1 MB\""});

  CHECK(deck.kv.block_tokens == 32);
  CHECK(deck.batch.prefill_min == 1.0);
  CHECK(deck.kv.memory == 1000000);
  CHECK(deck.output.directory == "a b");
  CHECK(deck.model.checkpoint == "c:\\d");
  CHECK(deck.exchange.memory == 1000000);
}

TEST_CASE("an override of text may stand without quotes, whatever it looks like") {
  const metro::Deck deck = override_with({"experts.placement=eplb", "kv.memory=512 MiB", "output.directory=2024",
                                          "model.checkpoint=/data/a=b#c.h5", "requests.input=[x] \"y\".jsonl"});

  CHECK(deck.experts.placement == "eplb");
  CHECK(deck.kv.memory == 536870912);
  CHECK(deck.output.directory == "2024");
  CHECK(deck.model.checkpoint == "/data/a=b#c.h5");
  CHECK(deck.requests.input == Texts{"[x] \"y\".jsonl"});
}

TEST_CASE("an override of a list may be one text or an array") {
  const auto input_of = [](const std::string& value) {
    return override_with({"requests.input=" + value}).requests.input;
  };

  CHECK(input_of("-") == Texts{"-"});
  CHECK(input_of("in/*.jsonl") == Texts{"in/*.jsonl"});
  CHECK(input_of("[\"a\", 'b c']") == Texts{"a", "b c"});
  CHECK(input_of("[ab].jsonl") == Texts{"[ab].jsonl"});
  CHECK(input_of("[1]") == Texts{"[1]"});
}

TEST_CASE("overrides can give the required keys") {
  const metro::Deck deck =
      metro::parse_deck("", "deck.toml", {"model.checkpoint=a", "requests.input=b", "output.directory=c"});

  CHECK(deck.requests.input == Texts{"b"});
}

TEST_CASE("overrides can take back what the file says") {
  const metro::Deck deck = override_with({"experts.slots_per_rank=4", "experts.replication=1.0"});

  CHECK(deck.experts.slots_per_rank == 4);
}

TEST_CASE("an override of an unknown key is refused with the nearest known one") {
  expect_refusal({"batch.prefil_chunk=3"}, {"override 'batch.prefil_chunk=3': unknown key batch.prefil_chunk",
                                            "did you mean batch.prefill_chunk?"});
  expect_refusal({"threads=3"}, {"override 'threads=3'", "did you mean run.threads?"});
  expect_refusal({"zzz.yyyyyyyyyyyyyyyy=3"}, {"unknown key zzz.yyyyyyyyyyyyyyyy; tables are model"});
}

TEST_CASE("an override without the form table.key=value is refused") {
  expect_refusal({"deck2.toml"}, {"override 'deck2.toml': must have the form table.key=value"});
  expect_refusal({"=3"}, {"override '=3': must have the form table.key=value"});
  expect_refusal({""}, {"override ''"});
}

TEST_CASE("an override with a wrong value is refused by name") {
  expect_refusal({"run.threads=abc"}, {"override 'run.threads=abc': run.threads = abc", "from 1 to 1024", "not text"});
  expect_refusal({"run.threads=12abc"}, {"override 'run.threads=12abc'", "from 1 to 1024"});
  expect_refusal({"run.threads="}, {"override 'run.threads='", "from 1 to 1024"});
  expect_refusal({"run.threads=1\nkv.memory=3"}, {"run.threads = 1?kv.memory=3: must be", "from 1 to 1024"});
  expect_refusal({"run.timeout_s=nan"}, {"override 'run.timeout_s=nan'", "above 0.0"});
  expect_refusal({"model.checkpoint=\"a"}, {"override 'model.checkpoint=\"a'", "not text in TOML syntax"});
  expect_refusal({"model.checkpoint="}, {"must be a path"});
  expect_refusal({"model.checkpoint=\xff"}, {"not valid UTF-8"});
  expect_refusal({"kv.memory=lots"}, {"override 'kv.memory=lots'", "\"512 MiB\""});
  expect_refusal({"run.threads=" + std::string(9000, '[')}, {"from 1 to 1024"});
  expect_refusal({"model.checkpoint=" + std::string(10000, 'x')},
                 {"override 'model.checkpoint=xx", "10017 bytes are too many for an override (at most 10000)"});
}

TEST_CASE("a key that is overridden twice is refused") {
  expect_refusal({"run.threads=1", "run.threads=1"}, {"override 'run.threads=1'", "run.threads is overridden twice"});
}

TEST_CASE("keys that contradict each other name the override") {
  expect_refusal({"experts.slots_per_rank=4"},
                 {"override 'experts.slots_per_rank=4'", "deck.toml:11", "only one of them"});
  expect_refusal({"experts.loads=l.json"}, {"override 'experts.loads=l.json'", "\"eplb\""});
  expect_refusal({"experts.trace=t.h5"}, {"override 'experts.trace=t.h5'", "\"activation-aware\"", "\"trivial\""});
  expect_refusal({"experts.placement=activation-aware"}, {"needs experts.trace"});
}
