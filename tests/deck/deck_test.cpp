#include "deck/deck.hpp"
#include "deck/deck_text.hpp"
#include "deck/parameter_value.hpp"
#include "deck/parameters.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <set>

using metro::Deck;
using metro::test::least_deck;
using Texts = std::vector<std::string>;

namespace {

Deck parse(const std::string& text) {
  return metro::parse_deck(text, "deck.toml", {});
}

}  // namespace

TEST_CASE("a deck with the required keys only has the documented defaults") {
  const Deck deck = parse(least_deck());

  CHECK(deck.model.checkpoint == "tiny.h5");
  CHECK(deck.model.max_context == 0);
  CHECK(deck.requests.input == Texts{"prompts.jsonl"});
  CHECK(deck.requests.max_tokens == 256);
  CHECK(deck.requests.arrivals.empty());
  CHECK(deck.requests.arrival_scale == 1.0);
  CHECK(deck.requests.temperature == 0.0);
  CHECK(deck.output.directory == "results");
  CHECK(deck.experts.replication == 1.0);
  CHECK(deck.experts.slots_per_rank == 0);
  CHECK(deck.experts.placement == "trivial");
  CHECK(deck.experts.loads.empty());
  CHECK(deck.experts.rebalance_steps == 0);
  CHECK(deck.experts.rebalance_source == "auto");
  CHECK(deck.routing.decode == "exact");
  CHECK(deck.routing.prefill == "even");
  CHECK(deck.batch.max_sequences_per_rank == 32);
  CHECK(deck.batch.prefill_chunk == 512);
  CHECK(deck.batch.prefill_min == 0.5);
  CHECK(deck.kv.block_tokens == 16);
  CHECK(deck.kv.memory == 0);
  CHECK(deck.exchange.memory == 256 * 1024 * 1024);
  CHECK(deck.trace.record.empty());
  CHECK(deck.run.threads == 1);
  CHECK(deck.run.simd == "auto");
  CHECK(deck.run.timeout_s == 300.0);
  CHECK(deck.run.core_dumps == "off");
  CHECK(deck.run.checkpoint_s == 300.0);
}

TEST_CASE("every key reaches its own field") {
  const Deck deck = parse(R"(
    model = {checkpoint = 'a.h5', max_context = 4_096}
    requests.input = ["b.jsonl", "in/*.jsonl.gz"]
    requests.max_tokens = 7
    requests.arrivals = "trace.csv"
    requests.arrival_scale = 0.5
    [output]
    directory = "c"
    [experts]
    replication = 2
    placement = "eplb"
    loads = "loads.json"
    rebalance_steps = 500
    rebalance_source = "checkpoint"
    [routing]
    decode = "metro-scarce"
    prefill = "even"
    [batch]
    max_sequences_per_rank = 3
    prefill_chunk = 0x10
    prefill_min = 1.0
    [kv]
    block_tokens = 4096
    memory = "2 GiB"
    [exchange]
    memory = 1048577
    [run]
    threads = 8
    simd = 'avx2'
    timeout_s = 0.25
    core_dumps = "on"
  )");

  CHECK(deck.model.checkpoint == "a.h5");
  CHECK(deck.model.max_context == 4096);
  CHECK(deck.requests.input == Texts{"b.jsonl", "in/*.jsonl.gz"});
  CHECK(deck.requests.max_tokens == 7);
  CHECK(deck.requests.arrivals == "trace.csv");
  CHECK(deck.requests.arrival_scale == 0.5);
  CHECK(deck.output.directory == "c");
  CHECK(deck.experts.replication == 2.0);
  CHECK(deck.experts.placement == "eplb");
  CHECK(deck.experts.loads == "loads.json");
  CHECK(deck.experts.rebalance_steps == 500);
  CHECK(deck.experts.rebalance_source == "checkpoint");
  CHECK(deck.routing.decode == "metro-scarce");
  CHECK(deck.batch.max_sequences_per_rank == 3);
  CHECK(deck.batch.prefill_chunk == 16);
  CHECK(deck.batch.prefill_min == 1.0);
  CHECK(deck.kv.block_tokens == 4096);
  CHECK(deck.kv.memory == 2147483648);
  CHECK(deck.exchange.memory == 1048577);
  CHECK(deck.run.threads == 8);
  CHECK(deck.run.simd == "avx2");
  CHECK(deck.run.timeout_s == 0.25);
  CHECK(deck.run.core_dumps == "on");
  CHECK(parse(least_deck("[experts]\nslots_per_rank = 9")).experts.slots_per_rank == 9);
  CHECK(parse(least_deck("[experts]\nplacement = 'maps/a.json'")).experts.placement == "maps/a.json");
}

TEST_CASE("names of parameters are unique and parameters of a table stand together") {
  std::set<std::string> names;
  std::set<std::string> tables;
  std::string table;

  for (const metro::Parameter& parameter : metro::parameters()) {
    CAPTURE(parameter.name);
    CHECK(names.insert(parameter.name).second);
    if (parameter.table() != table) {
      table = parameter.table();
      CHECK(tables.insert(table).second);
    }
  }
}

TEST_CASE("a resolved deck as TOML gives the same deck again") {
  Deck deck = parse(least_deck());
  deck.model.checkpoint = "a \"quoted\" \\ name # of\ttwo\nlines \x7f \xc3\xa9";
  deck.requests.input = {"a, b", "\"c\"", "-"};
  deck.experts.replication = 1.0 / 3.0 + 1.0;
  deck.experts.placement = "folder/map.json";
  deck.kv.memory = 1000;
  deck.exchange.memory = std::int64_t{3} << 30;
  deck.run.timeout_s = 1e-7;

  const std::string text = metro::deck_to_toml(deck);
  const Deck again = metro::parse_deck(text, "resolved", {});

  CHECK(again.model.checkpoint == deck.model.checkpoint);
  CHECK(again.requests.input == deck.requests.input);
  CHECK(again.experts.replication == deck.experts.replication);
  CHECK(again.run.timeout_s == deck.run.timeout_s);
  for (const metro::Parameter& parameter : metro::parameters()) {
    CAPTURE(parameter.name);
    CHECK(metro::value_in_toml(parameter, again) == metro::value_in_toml(parameter, deck));
  }
}

TEST_CASE("a deck is read from a file, also one with a byte order mark and line ends of Windows") {
  const metro::test::ScratchFolder folder;
  std::ofstream(folder.file("deck.toml"))
      << "\xef\xbb\xbf[model]\r\ncheckpoint = \"x\"\r\n[requests]\r\ninput = \"y\"\r\n"
         "[output]\r\ndirectory = \"z\"";

  const Deck deck = metro::read_deck(folder.file("deck.toml"), {"run.threads=2"});

  CHECK(deck.model.checkpoint == "x");
  CHECK(deck.output.directory == "z");
  CHECK(deck.run.threads == 2);
}

TEST_CASE("the quickstart deck is valid and asks for replicas, eplb and exact routing") {
  const Deck deck = metro::read_deck(METRO_SOURCE_DIR "/inputs/quickstart.toml", {});

  CHECK(deck.model.checkpoint == "build/quickstart/tiny.h5");
  CHECK(deck.requests.input == Texts{"inputs/prompts/stories.jsonl"});
  CHECK(deck.requests.max_tokens == 64);
  CHECK(deck.output.directory == "output/quickstart");
  CHECK(deck.experts.replication == 1.25);
  CHECK(deck.experts.placement == "eplb");
  CHECK(deck.routing.decode == "exact");
  CHECK(deck.routing.prefill == "even");
}
