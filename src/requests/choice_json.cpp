#include "requests/choice_json.hpp"

#include "base/error.hpp"
#include "requests/stop_watch.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace metro {

using nlohmann::ordered_json;

namespace {

constexpr float least_logprob = -9999.0F;

// A float as the double whose shortest decimal form is that of the float: 0.1F as 0.1, not as 0.10000000149011612.
// JSON has no infinity: what is below the least (or no number) becomes the least, as in vLLM.
double json_number(float value) {
  const std::string text = fmt::format("{}", value >= least_logprob ? value : least_logprob);
  double number = 0.0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  METRO_REQUIRE(result.ec == std::errc(), text);
  return number;
}

std::int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

std::string token_text(const Tokenizer* tokenizer, std::int32_t token) {
  if (tokenizer == nullptr) {
    return fmt::format("token_id:{}", token);
  }
  return tokenizer->decode(std::span(&token, 1), false, TextPart::continuation);
}

std::vector<std::int32_t> ids_of(std::span<const SampledToken> tokens) {
  std::vector<std::int32_t> ids;
  for (const SampledToken& sampled : tokens) {
    ids.push_back(sampled.token);
  }
  return ids;
}

// Where the stop string that ended the completion stands in its text.
StopMatch stop_match(const Tokenizer& tokenizer, const FinishedSequence& sample) {
  StopWatch watch(tokenizer, sample.request.sampling);
  std::optional<StopMatch> match;
  for (const SampledToken& sampled : sample.tokens) {
    match = watch.push(sampled.token);
  }
  METRO_REQUIRE(match && match->string_idx == sample.tokens.back().stop_string,
                fmt::format("request {} has no stop string at its end", sample.request.id));
  return *match;
}

// Text of the generated tokens, up to the stop token or string.
std::string completion_text(const Tokenizer& tokenizer, const FinishedSequence& sample, bool include_stop) {
  std::vector<std::int32_t> ids = ids_of(sample.tokens);
  const bool ends_with_token = sample.reason == FinishReason::stop || sample.reason == FinishReason::stop_token;
  if (ends_with_token && !include_stop) {
    ids.pop_back();
  }
  std::string text = tokenizer.decode(ids, true, TextPart::continuation);
  if (sample.reason == FinishReason::stop_string) {
    const StopMatch match = stop_match(tokenizer, sample);
    text.resize(include_stop ? match.end : match.begin);
  }
  return text;
}

// Text -> logprob of the likeliest tokens and of the sampled one, likeliest first.
ordered_json likeliest_object(const Tokenizer* tokenizer, const SampledToken& sampled) {
  ordered_json likeliest = ordered_json::object();
  bool has_sampled = false;
  for (const TokenLogprob& one : sampled.likeliest) {
    // emplace leaves a text that is there already: the likelier token of that text.
    likeliest.emplace(token_text(tokenizer, one.token), json_number(one.logprob));
    has_sampled = has_sampled || one.token == sampled.token;
  }
  if (!has_sampled) {
    likeliest.emplace(token_text(tokenizer, sampled.token), json_number(sampled.logprob));
  }
  return likeliest;
}

// The object "logprobs": arrays with an entry per token.
class Logprobs {
 public:
  explicit Logprobs(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // The first token of a prompt: nothing comes before it, so it has no probability.
  void add_first(std::int32_t token) {
    texts_.push_back(token_text(tokenizer_, token));
    values_.push_back(nullptr);
    likeliest_.push_back(nullptr);
  }

  void add(const SampledToken& sampled) {
    texts_.push_back(token_text(tokenizer_, sampled.token));
    values_.push_back(json_number(sampled.logprob));
    likeliest_.push_back(likeliest_object(tokenizer_, sampled));
  }

  // For each of the next tokens, how many characters are complete before it: `begin` and those of the tokens' text, as
  // far as it goes to the completion's end. Special tokens have no text in a completion.
  void add_offsets(std::span<const std::int32_t> ids, TextPart part, std::int64_t begin, std::int64_t end) {
    std::optional<StreamingDecoder> decoder;
    if (tokenizer_ != nullptr) {
      decoder.emplace(*tokenizer_, part == TextPart::continuation, part);
    }
    std::int64_t offset = begin;
    for (const std::int32_t id : ids) {
      offsets_.push_back(std::min(offset, end));
      offset += decoder ? num_characters(decoder->push(id)) : 0;
    }
  }

  ordered_json take() {
    return {{"tokens", std::move(texts_)},
            {"token_logprobs", std::move(values_)},
            {"top_logprobs", std::move(likeliest_)},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  const Tokenizer* tokenizer_;
  ordered_json texts_ = ordered_json::array();
  ordered_json values_ = ordered_json::array();
  ordered_json likeliest_ = ordered_json::array();
  ordered_json offsets_ = ordered_json::array();
};

const char* name_of(FinishReason reason) {
  METRO_REQUIRE(reason != FinishReason::none, "the completion is not finished");
  return reason == FinishReason::length ? "length" : "stop";
}

ordered_json stop_reason(const FinishedSequence& sample) {
  if (sample.reason == FinishReason::stop_token) {
    return sample.tokens.back().token;
  }
  if (sample.reason == FinishReason::stop_string) {
    return sample.request.sampling.stop[static_cast<std::size_t>(sample.tokens.back().stop_string)];
  }
  return nullptr;
}

ordered_json logprobs_object(const Tokenizer* tokenizer, const CompletedLine& line, const FinishedSequence& sample,
                             const std::string& prompt_text, const std::string& text) {
  Logprobs logprobs(tokenizer);
  const std::vector<std::int32_t>& prompt = sample.request.prompt;
  const std::int64_t prompt_end = num_characters(prompt_text);
  if (line.origin.echo) {
    METRO_REQUIRE(line.prompt_scores.size() + 1 == prompt.size(),
                  fmt::format("{} scores of {} prompt tokens", line.prompt_scores.size(), prompt.size()));
    logprobs.add_first(prompt.front());
    for (const SampledToken& score : line.prompt_scores) {
      logprobs.add(score);
    }
    logprobs.add_offsets(prompt, TextPart::whole, 0, prompt_end);
  }
  if (!line.origin.drops_completion) {
    for (const SampledToken& sampled : sample.tokens) {
      logprobs.add(sampled);
    }
    logprobs.add_offsets(ids_of(sample.tokens), TextPart::continuation, prompt_end, prompt_end + num_characters(text));
  }
  return logprobs.take();
}

// In the form of chat: its text, and its bytes, which may be no text by themselves.
ordered_json chat_token(const Tokenizer* tokenizer, std::int32_t token, float logprob) {
  ordered_json bytes = ordered_json::array();
  if (tokenizer != nullptr) {
    for (const char byte : tokenizer->token_bytes(token)) {
      bytes.push_back(static_cast<unsigned char>(byte));
    }
  }
  return {{"token", token_text(tokenizer, token)}, {"logprob", json_number(logprob)}, {"bytes", std::move(bytes)}};
}

ordered_json chat_logprobs(const Tokenizer* tokenizer, const FinishedSequence& sample) {
  ordered_json content = ordered_json::array();
  for (const SampledToken& sampled : sample.tokens) {
    ordered_json likeliest = ordered_json::array();
    for (const TokenLogprob& one : sampled.likeliest) {
      likeliest.push_back(chat_token(tokenizer, one.token, one.logprob));
    }
    content.push_back(chat_token(tokenizer, sampled.token, sampled.logprob));
    content.back()["top_logprobs"] = std::move(likeliest);
  }
  return {{"content", std::move(content)}};
}

}  // namespace

ordered_json choice_json(const Tokenizer* tokenizer, const CompletedLine& line, const FinishedSequence& sample) {
  const RequestOrigin& origin = line.origin;
  const Request& request = sample.request;
  std::string prompt_text;
  std::string text;
  if (tokenizer != nullptr && origin.echo) {
    prompt_text = tokenizer->decode(request.prompt, false);
  }
  if (tokenizer != nullptr && !origin.drops_completion) {
    text = completion_text(*tokenizer, sample, origin.include_stop);
  }
  ordered_json choice{{"index", request.sampling.sample_index}};
  if (origin.is_chat) {
    choice["message"] = {{"role", "assistant"}, {"content", text}};
  } else {
    choice["text"] = prompt_text + text;
  }
  choice["logprobs"] = nullptr;
  if (request.num_logprobs >= 0) {
    choice["logprobs"] =
        origin.is_chat ? chat_logprobs(tokenizer, sample) : logprobs_object(tokenizer, line, sample, prompt_text, text);
  }
  choice["finish_reason"] = origin.drops_completion ? "length" : name_of(sample.reason);
  choice["stop_reason"] = origin.drops_completion ? ordered_json() : stop_reason(sample);
  if (origin.return_token_ids) {
    choice["prompt_token_ids"] = request.prompt;
    choice["token_ids"] = origin.drops_completion ? ordered_json::array() : ordered_json(ids_of(sample.tokens));
  }
  return choice;
}

}  // namespace metro
