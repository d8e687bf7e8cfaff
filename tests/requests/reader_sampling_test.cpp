// What the reader settles after the fields are read: several completions, temperature, seed, limits of min_tokens.
#include "requests/request_reader.hpp"

#include "requests/reader_harness.hpp"

#include <catch2/catch.hpp>

using metro::Request;
using metro::RequestDefaults;
using metro::RequestReader;
using metro::test::message_of;
using metro::test::prompt_of_length;
using metro::test::read_all;
using metro::test::read_text;
using metro::test::ReadResult;
using metro::test::rejection_of;
using metro::test::ScratchFolder;
using metro::test::small_defaults;

TEST_CASE("min_tokens cannot exceed max_tokens, given or by default") {
  CHECK(message_of(R"({"prompt": [1], "max_tokens": 3, "min_tokens": 4})") ==
        "min_tokens 4: at most 3 is allowed (max_tokens)");
  CHECK(message_of(R"({"prompt": [1], "min_tokens": 17})") == "min_tokens 17: at most 16 is allowed (max_tokens)");
  CHECK(rejection_of("{\"prompt\": " + prompt_of_length(30) + ", \"min_tokens\": 3}").field == "min_tokens");
  CHECK(read_text(R"({"prompt": [1], "max_tokens": 3, "min_tokens": 3})").accepted.size() == 1);
}

TEST_CASE("max_tokens 0 with echo asks for the prompt alone") {
  const auto result = read_text(R"({"prompt": [1], "max_tokens": 0, "echo": true})");

  REQUIRE(result.accepted.size() == 1);
  CHECK(result.accepted[0].samples[0].max_tokens == 1);
  CHECK(result.accepted[0].origin.drops_completion);
  CHECK(!read_text(R"({"prompt": [1], "max_tokens": 1, "echo": true})").accepted[0].origin.drops_completion);
}

TEST_CASE("n completions are n requests that differ in id and index, and score the prompt once") {
  const auto result = read_text(R"({"prompt": [1], "temperature": 1, "n": 3, "logprobs": 1, "echo": true})"
                                "\n"
                                R"({"prompt": [2]})");

  REQUIRE(result.accepted.size() == 2);
  const auto& [samples, origin] = result.accepted[0];
  REQUIRE(samples.size() == 3);
  CHECK(origin.num_samples == 3);
  for (std::int32_t i = 0; i < 3; ++i) {
    Request alike = samples[static_cast<std::size_t>(i)];
    CHECK(alike.id == i);
    CHECK(alike.sampling.sample_index == i);
    CHECK(alike.scores_prompt == (i == 0));
    alike.id = 0;
    alike.sampling.sample_index = 0;
    alike.scores_prompt = true;
    CHECK((alike == samples[0]));
  }
  CHECK(result.accepted[1].samples[0].id == 3);
}

TEST_CASE("several completions need a temperature") {
  CHECK(message_of(R"({"prompt": [1], "n": 2})") ==
        "n 2: only 1 is allowed at temperature 0, where all completions are the same");
  CHECK(rejection_of(R"({"prompt": [1], "n": 2, "temperature": 0})").field == "n");
}

TEST_CASE("the default temperature is for lines that give none") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("in.jsonl"),
                               "{\"prompt\": [1]}\n{\"prompt\": [1], \"temperature\": 0}\n"
                               "{\"prompt\": [1], \"temperature\": null}\n");
  RequestDefaults defaults = small_defaults();
  defaults.temperature = 0.75;
  RequestReader reader(folder.file("in.jsonl"), defaults, nullptr);

  const auto result = read_all(reader);

  REQUIRE(result.accepted.size() == 3);
  CHECK(result.accepted[0].samples[0].sampling.temperature == 0.75);
  CHECK(result.accepted[1].samples[0].sampling.temperature == 0.0);
  CHECK(result.accepted[2].samples[0].sampling.temperature == 0.75);
}

TEST_CASE("without a seed it comes from custom_id and fields, wherever the line stands and in whatever form") {
  const auto seed_of = [](const std::string& line) {
    const ReadResult result = read_text("\n" + line);
    REQUIRE(result.accepted.size() == 1);
    return result.accepted[0].samples[0].sampling.seed;
  };
  const auto seed = seed_of(R"({"custom_id": "a", "prompt": [1], "temperature": 1})");

  CHECK(seed_of(R"({"temperature": 1, "prompt": [1], "top_p": null, "seed": -1, "custom_id": "a"})") == seed);
  CHECK(seed_of(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", )"
                R"("body": {"prompt": [1], "temperature": 1}})") == seed);
  CHECK(seed_of(R"({"custom_id": "b", "prompt": [1], "temperature": 1})") != seed);
  CHECK(seed_of(R"({"custom_id": "a", "prompt": [2], "temperature": 1})") != seed);
  CHECK(seed_of(R"({"custom_id": "a", "prompt": [1], "temperature": 2})") != seed);
  CHECK(seed_of(R"({"custom_id": "a", "prompt": [1], "temperature": 1, "seed": 5})") == 5);
  CHECK(seed_of(R"({"custom_id": "b", "prompt": [2], "temperature": 1, "seed": -2})") == 0xFFFFFFFFFFFFFFFEU);
  const auto twins = read_text("{\"prompt\": [1], \"temperature\": 1}\n{\"prompt\": [1], \"temperature\": 1}");
  CHECK(twins.accepted[0].samples[0].sampling.seed != twins.accepted[1].samples[0].sampling.seed);
}
