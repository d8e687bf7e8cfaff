#include "deck/deck.hpp"
#include "deck/deck_text.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <initializer_list>

using metro::ExitCode;
using metro::test::expect_error;
using metro::test::least_deck;

namespace {

void expect_refusal(const std::string& text, std::initializer_list<const char*> texts) {
  CAPTURE(text.substr(0, 300));
  expect_error(ExitCode::usage, texts, [&] { metro::parse_deck(text, "deck.toml", {}); });
}

}  // namespace

TEST_CASE("an unknown key is refused with its line and the nearest known one") {
  expect_refusal(least_deck("[batch]\nprefil_chunk = 3"),
                 {"deck.toml:9: ", "unknown key batch.prefil_chunk", "did you mean batch.prefill_chunk?"});
  expect_refusal(least_deck("[run]\nprefill_chunk = 3"),
                 {"deck.toml:9: ", "run.prefill_chunk", "mean batch.prefill_chunk?"});
  expect_refusal(least_deck("[kv]\nwavelength = 1"),
                 {"kv.wavelength", "[kv] has block_tokens, memory, share_prefixes"});
  expect_refusal(least_deck("[kv.memory]\nx = 1"), {"deck.toml:8: ", "kv.memory", "not a table"});
  expect_refusal("threads = 2\n" + least_deck(), {"deck.toml:1: ", "unknown key threads", "mean run.threads?"});
}

TEST_CASE("a key without a name is refused") {
  expect_refusal(least_deck("[run]\n\"\" = 1"), {"deck.toml:9: ", "[run]", "without a name"});
}

TEST_CASE("an unknown table is refused with its line and the nearest known one") {
  expect_refusal(least_deck("[batc]\nx = 1"), {"deck.toml:9: ", "unknown table [batc]", "did you mean [batch]?"});
  expect_refusal(least_deck("[batc]"), {"deck.toml:8: ", "unknown table [batc]"});
  expect_refusal(least_deck("[frobnicate]"), {"[frobnicate]", "tables are model, requests, output"});
  expect_refusal("model = 3", {"deck.toml:1: model = 3: must be a table, [model]"});
  expect_refusal(least_deck("[[kv]]\nmemory = 1"), {"deck.toml:8: ", "must be a table, [kv]"});
}

TEST_CASE("a value of the wrong type is refused with what is allowed") {
  expect_refusal(
      least_deck("[batch]\nprefill_chunk = \"5\""),
      {"deck.toml:9: batch.prefill_chunk = \"5\": must be a whole number from 1 to 1048576 (tokens), not text"});
  expect_refusal(least_deck("[batch]\nprefill_chunk = 5.0"), {"prefill_chunk = 5.0", "not a number with a fraction"});
  expect_refusal(least_deck("[batch]\nprefill_chunk = true"), {"not a boolean"});
  expect_refusal(least_deck("[batch]\nprefill_chunk = [1, 2]"), {"not an array"});
  expect_refusal(least_deck("[batch]\nprefill_min = 2024-01-01"), {"not a date or time"});
  expect_refusal(least_deck("[kv]\nmemory = 1.5"),
                 {"kv.memory = 1.5", "a size from 0 to 256 TiB", "not a number with"});
  expect_refusal("[model]\ncheckpoint = 3", {"deck.toml:2: model.checkpoint = 3: must be a path, not a whole number"});
}

TEST_CASE("a value out of range is refused with the range") {
  expect_refusal(least_deck("[batch]\nprefill_chunk = 0"), {"prefill_chunk = 0", "from 1 to 1048576"});
  expect_refusal(least_deck("[batch]\nprefill_chunk = -9223372036854775808"), {"from 1 to 1048576"});
  expect_refusal(least_deck("[batch]\nprefill_chunk = 99999999999999999999"),
                 {"prefill_chunk = 99999999999999999999:"});
  expect_refusal(least_deck("[kv]\nblock_tokens = 4097"), {"kv.block_tokens = 4097", "from 1 to 4096"});
  expect_refusal(least_deck("[experts]\nreplication = 0.99"), {"experts.replication = 0.99", "from 1.0 to 65536.0"});
  expect_refusal(least_deck("[batch]\nprefill_min = 1.01"), {"from 0.0 to 1.0"});
  expect_refusal(least_deck("[run]\ntimeout_s = 0"), {"run.timeout_s = 0", "above 0.0, at most 604800.0 (seconds)"});
  expect_refusal(least_deck("[kv]\nmemory = -1"), {"kv.memory = -1"});
  expect_refusal("[requests]\narrival_scale = 0", {"requests.arrival_scale = 0", "above 0.0, at most 1000000.0"});
  expect_refusal(least_deck("[kv]\nmemory = \"512 Mib\""), {"kv.memory = \"512 Mib\"", "\"512 MiB\"", "units B, KiB"});
  expect_refusal(least_deck("[exchange]\nmemory = \"1 KiB\""), {"a size from 4 KiB to 1 TiB"});
}

TEST_CASE("a number that is not finite is refused") {
  for (const char* number : {"nan", "-nan", "inf", "+inf", "-inf", "1e999"}) {
    CAPTURE(number);
    expect_refusal(least_deck(std::string("[run]\ntimeout_s = ") + number), {"run.timeout_s = ", number, "above 0.0"});
    expect_refusal(least_deck(std::string("[experts]\nreplication = ") + number),
                   {"experts.replication = ", "from 1.0"});
  }
}

TEST_CASE("a word that is not among the choices is refused with the choices") {
  expect_refusal(least_deck("[routing]\ndecode = \"exat\""),
                 {"deck.toml:9: routing.decode = \"exat\"", "\"exact\", \"metro\", \"metro-scarce\", \"even\"",
                  "\"local\" or \"makespan\""});
  expect_refusal(least_deck("[routing]\nprefill = \"vllm\""),
                 {"routing.prefill = \"vllm\": must be \"exact\"", "\"vllm-knuth\""});
  expect_refusal("[model]\nsharing = \"core\"",
                 {"deck.toml:2: model.sharing = \"core\": must be \"auto\", \"node\" or \"rank\""});
  expect_refusal(least_deck("[experts]\nplacement = \"best\""),
                 {"\"trivial\", \"eplb\", \"activation-aware\" or the path of a file", ".json"});
}

TEST_CASE("a path that is empty or holds a NUL character is refused") {
  expect_refusal("[model]\ncheckpoint = \"\"", {"model.checkpoint = \"\": must be a path"});
  expect_refusal("[model]\ncheckpoint = \"a\\u0000b\"", {"model.checkpoint", "must be a path"});
}

TEST_CASE("a list that is empty or holds anything but paths is refused") {
  const auto refused = [](const std::string& input, const char* what) {
    expect_refusal("[requests]\ninput = " + input,
                   {"deck.toml:2: requests.input = ", "a path or a list of paths", what});
  };

  refused("[]", "[]");
  refused("\"\"", "\"\"");
  refused("[\"a\", \"\"]", "\"a\"");
  refused("[\"a\\u0000\"]", "paths");
  refused("[3]", "not an array of values other than text");
  refused("3", "not a whole number");
  expect_refusal("[model]\ncheckpoint = [\"a\"]", {"model.checkpoint = ", "must be a path, not an array"});
}

TEST_CASE("a repeated key or table is refused with its line") {
  expect_refusal(least_deck("[run]\nthreads = 1\nthreads = 1"), {"deck.toml:10: ", "threads = 1", "repeats"});
  expect_refusal(least_deck("[run]\n[run]"), {"deck.toml:9: ", "[run]", "repeats"});
  expect_refusal(least_deck("[kv]\n[run]\nthreads = 1\n[kv]\nmemory = 1"), {"deck.toml:11: ", "[kv]", "repeats"});
  expect_refusal("run.threads = 1\n[run]\nthreads = 2", {"deck.toml:2: ", "repeats"});
  expect_refusal("run = {threads = 1, threads = 2}", {"deck.toml:1: ", "repeats"});
}

TEST_CASE("a required key that is missing is named with its meaning") {
  expect_refusal("", {"deck.toml: required key model.checkpoint is missing", "metro convert"});
  expect_refusal("[model]\ncheckpoint = \"x\"\n[output]\ndirectory = \"y\"",
                 {"required key requests.input is missing"});
  expect_refusal("[model]\ncheckpoint = \"x\"\n[requests]\ninput = \"y\"",
                 {"required key output.directory is missing"});
}

TEST_CASE("keys that contradict each other are refused with both values and places") {
  expect_refusal(least_deck("[experts]\nreplication = 1.25\nslots_per_rank = 4"),
                 {"deck.toml:10: ", "slots_per_rank = 4", "replication = 1.25", "deck.toml:9", "only one of them"});
  expect_refusal(least_deck("[experts]\nloads = \"l.json\""),
                 {"deck.toml:9: experts.loads = \"l.json\"", "\"eplb\"", "\"trivial\""});
}

TEST_CASE("keys of a routing policy that is not used are refused, and costs of makespan that tell nothing apart") {
  expect_refusal(least_deck("[routing]\nseed = 3"),
                 {"deck.toml:9: routing.seed = 3", "\"vllm-random\"", "decode is \"exact\"", "prefill \"even\""});
  expect_refusal(least_deck("[routing]\nties = \"near\"\ndecode = \"even\""),
                 {"deck.toml:9: routing.ties = \"near\"", "only the policy \"exact\"", "decode is \"even\""});
  for (const char* key : {"read_fixed_ns", "read_per_expert_ns", "compute_fixed_ns", "compute_per_row_ns"}) {
    CAPTURE(key);
    expect_refusal(least_deck(std::string("[routing]\n") + key + " = 5"),
                   {"deck.toml:9: ", "routing.", "_ns = 5", "only the policy \"makespan\""});
    CHECK_NOTHROW(
        metro::parse_deck(least_deck(std::string("[routing]\nprefill = 'makespan'\n") + key + " = 5"), "d", {}));
  }
  expect_refusal(
      least_deck("[routing]\ndecode = \"makespan\"\nread_per_expert_ns = 0\ncompute_per_row_ns = 0"),
      {"deck.toml:10: ", "routing.read_per_expert_ns and routing.compute_per_row_ns are both 0", "at least one"});
  expect_refusal(least_deck("[routing]\ncompute_per_row_ns = 1000000001"), {"from 0 to 1000000000 (ns)"});
  CHECK_NOTHROW(metro::parse_deck(least_deck("[routing]\ndecode = \"vllm-random\"\nseed = 3"), "d", {}));
}

TEST_CASE("a gathered gate is refused where rows do not reach every rank") {
  expect_refusal(least_deck("[decode]\ngate = \"gathered\"\nexchange = \"ids_then_alltoall\""),
                 {"deck.toml:9: ", "decode.gate = \"gathered\"", "decode.exchange = \"ids_then_alltoall\"",
                  "(deck.toml:10)", "decode.exchange = \"allgather\" or decode.gate = \"local\""});
  expect_refusal(least_deck("[decode]\nexchange = \"all\""), {"decode.exchange = \"all\"", "\"ids_then_alltoall\""});
  expect_refusal(least_deck("[decode]\ngate = \"global\""), {"decode.gate = \"global\"", "\"gathered\""});
  for (const char* exchange : {"auto", "allgather"}) {
    CHECK_NOTHROW(metro::parse_deck(least_deck("[decode]\ngate = \"gathered\""), "d",
                                    {std::string("decode.exchange=") + exchange}));
  }
}

TEST_CASE("text that is not TOML is refused with its line") {
  expect_refusal(least_deck("[routing]\ndecode = exact"),
                 {"deck.toml:9: 'decode = exact' is not valid TOML; text must stand in quotes"});
  expect_refusal("[model\n", {"deck.toml:1: '[model'", "not valid TOML"});
  expect_refusal("[model]\ncheckpoint =\n", {"deck.toml:2: 'checkpoint ='", "not valid TOML"});
  expect_refusal("[model]\ncheckpoint = 'x\n", {"deck.toml:2: "});
  expect_refusal("[model]\ncheckpoint = \"\xff\"\n", {"deck.toml:2: ", "is not UTF-8"});
  expect_refusal("[kv]\nmemory = 0x\n", {"deck.toml:2: 'memory = 0x' is not valid TOML"});
  expect_refusal("\"a\\nb\" = 1", {"deck.toml:1: unknown key a?b"});
  expect_refusal("\x89HDF\r\n\x1a\n", {"deck.toml:1: ", "not valid TOML"});
}

TEST_CASE("nesting that would exhaust the stack is refused") {
  const std::string deep = [] {
    std::string keys = "a";
    for (int i = 0; i < 30000; ++i) {
      keys += ".a";
    }
    return keys;
  }();

  expect_refusal("a = " + std::string(30000, '['), {"deck.toml:1: ", "more than 500 brackets"});
  expect_refusal("a = [\"\"\"x\"\"\"\", " + std::string(30000, '['), {"more than 500 brackets"});
  expect_refusal("# \"\na = ['\\', " + std::string(30000, '['), {"more than 500 brackets"});
  expect_refusal("a = ['''x''''', \"\\\"\", " + std::string(30000, '{'), {"more than 500 brackets"});
  expect_refusal(deep + " = 1", {"more than 500 brackets and dots"});
  expect_refusal("a = " + std::string(499, '['), {"deck.toml:", "not valid TOML"});
  CHECK_NOTHROW(metro::parse_deck(least_deck("# " + std::string(2000, '[')), "deck.toml", {"experts.loads="}));
}

TEST_CASE("text that is not UTF-8 is refused with its line and byte, in strings of all kinds") {
  for (const char* quote : {"'", "\"", "\'\'\'", "\"\"\"", ""}) {
    CAPTURE(quote);
    const std::string text = "a = 1\nb = " + (quote + std::string(28, '\x95')) + quote;

    expect_refusal(text, {"deck.toml:2: ", "is not UTF-8"});
  }
  expect_refusal("a = 1\n\n# \xc3(", {"deck.toml:3: this is not valid TOML: byte 9 is not UTF-8"});
  CHECK_NOTHROW(metro::parse_deck(least_deck("# \xc3\xb6"), "deck.toml", {"experts.loads="}));
}

TEST_CASE("a file that cannot be a deck is refused before it is read") {
  const metro::test::ScratchFolder folder;
  std::ofstream(folder.file("model.h5")) << std::string(70000, '#');
  const std::string most = least_deck("#");

  expect_error(ExitCode::usage, {"model.h5: 68.4 KiB are too many for a deck (at most 64.0 KiB)"},
               [&] { metro::read_deck(folder.file("model.h5"), {}); });
  expect_error(ExitCode::usage, {"/none", "No such file"}, [&] { metro::read_deck(folder.file("none"), {}); });
  expect_error(ExitCode::usage, {"folder"}, [&] { metro::read_deck(folder.path().string(), {}); });
  expect_refusal(std::string(65537, '#'), {"65537 bytes are too many for a deck (at most 65536)"});
  CHECK_NOTHROW(metro::parse_deck(most + std::string(65536 - most.size(), '#'), "deck.toml", {"experts.loads="}));
}
