// A finished request as a line of OpenAI's batch output form, with the additions of vLLM (token ids). Ids are made from
// custom_id alone: the same request gives the same line wherever it stands in the input.
#include "requests/completion_writer.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "requests/line_file.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <vector>

namespace metro {

using nlohmann::ordered_json;

namespace {

constexpr double flush_interval_s = 5.0;
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
  return tokenizer->decode(std::span(&token, 1), false);
}

std::string completion_text(const Tokenizer* tokenizer, std::span<const SampledToken> tokens) {
  if (tokenizer == nullptr) {
    return "";
  }
  std::vector<std::int32_t> ids;
  for (const SampledToken& sampled : tokens) {
    ids.push_back(sampled.token);
  }
  return tokenizer->decode(ids, true);
}

// For each token, how many characters of the text are complete before it.
std::vector<std::int64_t> text_offsets(const Tokenizer* tokenizer, std::span<const SampledToken> tokens) {
  std::vector<std::int64_t> offsets(tokens.size(), 0);
  if (tokenizer == nullptr) {
    return offsets;
  }
  StreamingDecoder decoder(*tokenizer, true);
  std::int64_t offset = 0;
  for (std::size_t token_idx = 0; token_idx < tokens.size(); ++token_idx) {
    offsets[token_idx] = offset;
    offset += num_characters(decoder.push(tokens[token_idx].token));
  }
  return offsets;
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

ordered_json logprobs_object(const Tokenizer* tokenizer, std::span<const SampledToken> tokens) {
  ordered_json texts = ordered_json::array();
  ordered_json values = ordered_json::array();
  ordered_json likeliest = ordered_json::array();
  for (const SampledToken& sampled : tokens) {
    texts.push_back(token_text(tokenizer, sampled.token));
    values.push_back(json_number(sampled.logprob));
    likeliest.push_back(likeliest_object(tokenizer, sampled));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(likeliest)},
          {"text_offset", text_offsets(tokenizer, tokens)}};
}

const char* name_of(FinishReason reason) {
  METRO_REQUIRE(reason != FinishReason::none, "the completion is not finished");
  return reason == FinishReason::stop ? "stop" : "length";
}

ordered_json choice_object(const Tokenizer* tokenizer, const Request& request, const RequestOrigin& origin,
                           std::span<const SampledToken> tokens, FinishReason reason) {
  ordered_json choice{{"index", 0}, {"text", completion_text(tokenizer, tokens)}, {"logprobs", nullptr}};
  if (request.num_logprobs >= 0) {
    choice["logprobs"] = logprobs_object(tokenizer, tokens);
  }
  choice["finish_reason"] = name_of(reason);
  if (origin.return_token_ids) {
    ordered_json ids = ordered_json::array();
    for (const SampledToken& sampled : tokens) {
      ids.push_back(sampled.token);
    }
    choice["prompt_token_ids"] = request.prompt;
    choice["token_ids"] = std::move(ids);
  }
  return choice;
}

std::string prepare_file(const std::string& directory, const char* name, bool overwrite) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  if (failure) {
    throw Error(ExitCode::usage, fmt::format("cannot create the folder {}: {}", directory, failure.message()));
  }
  const std::string path = (std::filesystem::path(directory) / name).string();
  require_room_for_output(path, overwrite);
  return path;
}

}  // namespace

void check_output(const std::string& directory, bool overwrite) {
  prepare_file(directory, "completions.jsonl", overwrite);
  prepare_file(directory, "errors.jsonl", overwrite);
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    throw Error(ExitCode::usage, fmt::format("cannot write in {}: {}", directory, std::strerror(errno)));
  }
}

struct CompletionWriter::Impl {
  const Tokenizer* tokenizer;
  std::string completions_path;
  std::string errors_path;
  LineFile completions;
  LineFile errors;
  bool has_new_lines = false;  // since the last flush
  double last_flush_s = 0.0;

  Impl(const std::string& directory, bool overwrite, const Tokenizer* given)
      : tokenizer(given),
        completions_path(prepare_file(directory, "completions.jsonl", overwrite)),
        errors_path(prepare_file(directory, "errors.jsonl", overwrite)),
        completions(completions_path, overwrite),
        errors(errors_path, overwrite) {}
};

CompletionWriter::CompletionWriter(const std::string& directory, bool overwrite, const Tokenizer* tokenizer)
    : impl_(std::make_unique<Impl>(directory, overwrite, tokenizer)) {}

CompletionWriter::~CompletionWriter() = default;

void CompletionWriter::write(const Request& request, const RequestOrigin& origin, std::span<const SampledToken> tokens,
                             FinishReason finish_reason) {
  const std::string key = to_hex(digest_of(origin.custom_id));
  const ordered_json choice = choice_object(impl_->tokenizer, request, origin, tokens, finish_reason);
  const ordered_json usage{{"prompt_tokens", request.prompt.size()},
                           {"completion_tokens", tokens.size()},
                           {"total_tokens", request.prompt.size() + tokens.size()}};
  const ordered_json body{{"id", "cmpl-" + key},
                          {"object", "text_completion"},
                          {"created", 0},
                          {"model", origin.model},
                          {"choices", ordered_json::array({choice})},
                          {"usage", usage}};
  const ordered_json line{{"id", "batch_req_" + key},
                          {"custom_id", origin.custom_id},
                          {"response", {{"status_code", 200}, {"request_id", "req_" + key}, {"body", body}}},
                          {"error", nullptr}};
  impl_->completions.write(to_json_line(line));
  impl_->has_new_lines = true;
}

void CompletionWriter::write(const Rejection& rejection) {
  const std::string key = to_hex(digest_of(rejection.custom_id));
  ordered_json error{{"message", rejection.message}, {"type", "invalid_request_error"}, {"param", nullptr}};
  if (!rejection.field.empty()) {
    error["param"] = rejection.field;
  }
  error["code"] = nullptr;
  const ordered_json body{{"error", error}};
  const ordered_json line{{"id", "batch_req_" + key},
                          {"custom_id", rejection.custom_id},
                          {"response", {{"status_code", 400}, {"request_id", "req_" + key}, {"body", body}}},
                          {"error", nullptr},
                          {"file", rejection.file},
                          {"line", rejection.line}};
  impl_->errors.write(to_json_line(line));
  impl_->has_new_lines = true;
}

void CompletionWriter::flush() {
  impl_->completions.flush();
  impl_->errors.flush();
  impl_->has_new_lines = false;
}

bool CompletionWriter::flush_if_due(double now_s) {
  if (!impl_->has_new_lines || now_s - impl_->last_flush_s < flush_interval_s) {
    return false;
  }
  flush();
  impl_->last_flush_s = now_s;
  return true;
}

}  // namespace metro
