#include "requests/request_fields.hpp"

#include "base/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace metro {

using nlohmann::json;

namespace {

constexpr std::int64_t most_logprobs = 20;

[[noreturn]] void refuse(std::string_view field, const json& value, std::string_view allowed) {
  throw LineError(std::string(field), fmt::format("{} {}: {}", field, excerpt(value), allowed));
}

// Nothing for what is no integer or does not fit 64 bits (1.0 is no integer, 2^63 does not fit).
std::optional<std::int64_t> integer_of(const json& value) {
  const bool fits = !value.is_number_unsigned() ||
                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return value.is_number_integer() && fits ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

bool read_bool(std::string_view field, const json& value) {
  if (!value.is_boolean()) {
    refuse(field, value, "only true or false is allowed");
  }
  return value.get<bool>();
}

std::string read_string(std::string_view field, const json& value) {
  if (!value.is_string()) {
    refuse(field, value, "a string is expected");
  }
  return value.get<std::string>();
}

std::vector<std::int32_t> read_token_ids(const json& values, std::int64_t vocab_size) {
  std::vector<std::int32_t> ids;
  ids.reserve(values.size());
  for (const json& value : values) {
    if (value.is_string() || value.is_array()) {
      throw LineError("prompt", fmt::format("prompt: an array of {} is not supported; give one prompt per line",
                                            value.is_string() ? "strings" : "arrays"));
    }
    const auto id = integer_of(value);
    if (!id || *id < 0 || *id >= vocab_size) {
      throw LineError("prompt", fmt::format("prompt[{}]: {} is no token id; ids are integers from 0 to {}", ids.size(),
                                            excerpt(value), vocab_size - 1));
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

std::vector<std::int32_t> read_text(const json& text, const RequestDraft& draft) {
  if (draft.tokenizer == nullptr) {
    throw LineError("prompt", "prompt: the checkpoint has no tokenizer; give token ids instead of text");
  }
  std::vector<std::int32_t> ids = draft.tokenizer->encode(text.get_ref<const std::string&>());
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= draft.vocab_size) {
      throw LineError("prompt", fmt::format("prompt: the text has token {}, the model knows only ids from 0 to {}", id,
                                            draft.vocab_size - 1));
    }
  }
  return ids;
}

void read_prompt(const json& value, RequestDraft& draft) {
  if (!value.is_string() && !value.is_array()) {
    refuse("prompt", value, "a string or an array of token ids is expected");
  }
  draft.request.prompt = value.is_string() ? read_text(value, draft) : read_token_ids(value, draft.vocab_size);
  if (draft.request.prompt.empty()) {
    throw LineError("prompt", "prompt: it has no tokens; at least one is needed");
  }
}

void read_max_tokens(const json& value, RequestDraft& draft) {
  const auto count = integer_of(value);
  if (!count || *count < 1) {
    refuse("max_tokens", value, "an integer of at least 1 is expected");
  }
  draft.max_tokens = *count;
}

void read_logprobs(const json& value, RequestDraft& draft) {
  const auto count = integer_of(value);
  const std::int64_t most = std::min(most_logprobs, draft.vocab_size);
  if (!count || *count < 0 || *count > most) {
    refuse("logprobs", value, fmt::format("null or an integer from 0 to {} is expected", most));
  }
  draft.request.num_logprobs = static_cast<std::int32_t>(*count);
}

void read_ignore_eos(const json& value, RequestDraft& draft) {
  draft.request.ignore_eos = read_bool("ignore_eos", value);
}

void read_return_token_ids(const json& value, RequestDraft& draft) {
  draft.origin.return_token_ids = read_bool("return_token_ids", value);
}

void read_model(const json& value, RequestDraft& draft) {
  draft.origin.model = read_string("model", value);
}

void read_seed(const json& value, RequestDraft&) {
  if (!value.is_number_integer()) {
    refuse("seed", value, "an integer is expected");
  }
}

void read_user(const json& value, RequestDraft&) {
  read_string("user", value);
}

void read_request_id(const json& value, RequestDraft&) {
  read_string("request_id", value);
}

void read_cache_salt(const json& value, RequestDraft&) {
  read_string("cache_salt", value);
}

void read_metadata(const json& value, RequestDraft&) {
  if (!value.is_object()) {
    refuse("metadata", value, "an object is expected");
  }
}

// Fields with a function, then those without effect, then those accepted only at the value that changes nothing.
constexpr auto table = std::to_array<RequestField>({
    {"prompt", read_prompt, "", ""},
    {"max_tokens", read_max_tokens, "", ""},
    {"logprobs", read_logprobs, "", ""},
    {"ignore_eos", read_ignore_eos, "", ""},
    {"return_token_ids", read_return_token_ids, "", ""},
    {"model", read_model, "", ""},

    {"seed", read_seed, "", ""},
    {"user", read_user, "", ""},
    {"metadata", read_metadata, "", ""},
    {"request_id", read_request_id, "", ""},
    {"cache_salt", read_cache_salt, "", ""},

    {"temperature", nullptr, "[0]", "only greedy (0) is supported"},
    {"top_p", nullptr, "[1]", ""},
    {"top_k", nullptr, "[0, -1]", ""},
    {"min_p", nullptr, "[0]", ""},
    {"n", nullptr, "[1]", ""},
    {"best_of", nullptr, "[1]", ""},
    {"use_beam_search", nullptr, "[false]", ""},
    {"length_penalty", nullptr, "[1]", ""},
    {"presence_penalty", nullptr, "[0]", ""},
    {"frequency_penalty", nullptr, "[0]", ""},
    {"repetition_penalty", nullptr, "[1]", ""},
    {"logit_bias", nullptr, "[{}]", ""},
    {"allowed_token_ids", nullptr, "[]", ""},
    {"bad_words", nullptr, "[[]]", ""},
    {"logits_processors", nullptr, "[[]]", ""},
    {"stop", nullptr, "[[]]", "stop strings are not supported"},
    {"stop_token_ids", nullptr, "[[]]", "stop tokens of a request are not supported"},
    {"include_stop_str_in_output", nullptr, "[false]", ""},
    {"min_tokens", nullptr, "[0]", ""},
    {"echo", nullptr, "[false]", ""},
    {"suffix", nullptr, "[\"\"]", ""},
    {"stream", nullptr, "[false]", ""},
    {"stream_options", nullptr, "[]", ""},
    {"prompt_logprobs", nullptr, "[]", ""},
    {"prompt_embeds", nullptr, "[]", ""},
    {"truncate_prompt_tokens", nullptr, "[]", ""},
    {"add_special_tokens", nullptr, "[false]", "only false is supported: no token is added to a prompt"},
    {"skip_special_tokens", nullptr, "[true]", ""},
    {"spaces_between_special_tokens", nullptr, "[true]", ""},
    {"return_tokens_as_token_ids", nullptr, "[false]", ""},
    {"response_format", nullptr, R"([{"type": "text"}])", ""},
    {"structured_outputs", nullptr, "[]", ""},
    {"priority", nullptr, "[0]", ""},
    {"service_tier", nullptr, R"(["auto", "default"])", ""},
    {"kv_transfer_params", nullptr, "[]", ""},
    {"vllm_xargs", nullptr, "[{}]", ""},
    {"messages", nullptr, "[]", "chat is not supported; give \"prompt\""},
    {"max_completion_tokens", nullptr, "[]", "a field of chat, which is not supported; give \"max_tokens\""},
    {"top_logprobs", nullptr, "[]", "a field of chat, which is not supported; give \"logprobs\""},
});

void require_neutral(const RequestField& field, const json& value) {
  const json neutral = json::parse(field.neutral);
  if (std::find(neutral.begin(), neutral.end(), value) != neutral.end()) {
    return;
  }
  std::string supported(field.supported);
  for (const json& one : neutral) {
    if (field.supported.empty()) {
      supported += (supported.empty() ? "only " : " or ") + one.dump();
    }
  }
  if (supported.empty()) {
    supported = "not supported";
  } else if (field.supported.empty()) {
    supported += " is supported";
  }
  refuse(field.name, value, supported);
}

// Levenshtein distance: fewest characters inserted, removed or replaced.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

[[noreturn]] void refuse_unknown(const std::string& name) {
  constexpr std::size_t longest_typo = 40;
  std::string message = fmt::format("unknown field \"{}\"", excerpt(name, longest_typo));
  if (name.size() <= longest_typo) {
    const auto distance = [&](const RequestField& field) { return edit_distance(name, field.name); };
    const auto nearest = std::min_element(table.begin(), table.end(),
                                          [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    if (distance(*nearest) <= std::max<std::size_t>(2, name.size() / 3)) {
      message += fmt::format("; did you mean \"{}\"?", nearest->name);
    }
  }
  throw LineError(excerpt(name, longest_typo), message);
}

}  // namespace

std::span<const RequestField> request_fields() {
  return table;
}

void read_request_fields(const json& body, RequestDraft& draft) {
  for (const auto& [name, value] : body.items()) {
    const auto field = std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.name == name; });
    if (field == table.end()) {
      refuse_unknown(name);
    }
    if (value.is_null()) {
      continue;
    }
    if (field->read != nullptr) {
      field->read(value, draft);
    } else {
      require_neutral(*field, value);
    }
  }
  if (draft.request.prompt.empty()) {
    throw LineError("prompt", "prompt: missing; a string or an array of token ids is expected");
  }
}

std::string excerpt(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) {
    return std::string(text);
  }
  // 10xxxxxx is the inside of a UTF-8 character.
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0U) == 0x80U) {
    --max_bytes;
  }
  return std::string(text.substr(0, max_bytes)) + "...";
}

std::string excerpt(const json& value) {
  return excerpt(value.dump(), 60);
}

}  // namespace metro
