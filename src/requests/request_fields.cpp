#include "requests/request_fields.hpp"

#include "requests/chat_fields.hpp"
#include "requests/sampling_fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace metro {

using nlohmann::json;

namespace {

constexpr std::int64_t most_logprobs = 20;

std::vector<std::int32_t> read_prompt_ids(const json& values, std::int64_t vocab_size) {
  for (const json& value : values) {
    if (value.is_string() || value.is_array()) {
      throw LineError("prompt", fmt::format("prompt: an array of {} is not supported; give one prompt per line",
                                            value.is_string() ? "strings" : "arrays"));
    }
  }
  return read_token_ids("prompt", values, vocab_size);
}

void read_prompt(const json& value, RequestDraft& draft) {
  if (!value.is_string() && !value.is_array()) {
    refuse("prompt", value, "a string or an array of token ids is expected");
  }
  if (value.is_string() && draft.tokenizer == nullptr) {
    throw LineError("prompt", "prompt: the checkpoint has no tokenizer; give token ids instead of text");
  }
  draft.request.prompt = value.is_string() ? read_prompt_text(value.get_ref<const std::string&>(), draft)
                                           : read_prompt_ids(value, draft.vocab_size);
  if (draft.request.prompt.empty()) {
    throw LineError("prompt", "prompt: it has no tokens; at least one is needed");
  }
}

void read_add_special_tokens(const json& value, RequestDraft& draft) {
  draft.adds_special_tokens = read_bool("add_special_tokens", value);
}

void read_max_tokens(const json& value, RequestDraft& draft) {
  draft.max_tokens = read_integer("max_tokens", value, 0, std::numeric_limits<std::int64_t>::max(),
                                  "an integer of at least 1 is expected");
}

void read_logprobs(const json& value, RequestDraft& draft) {
  const std::int64_t most = std::min(most_logprobs, draft.vocab_size);
  draft.request.num_logprobs = static_cast<std::int32_t>(
      read_integer("logprobs", value, 0, most, fmt::format("null or an integer from 0 to {} is expected", most)));
}

void read_ignore_eos(const json& value, RequestDraft& draft) {
  draft.request.ignore_eos = read_bool("ignore_eos", value);
}

void read_return_token_ids(const json& value, RequestDraft& draft) {
  draft.origin.return_token_ids = read_bool("return_token_ids", value);
}

void read_echo(const json& value, RequestDraft& draft) {
  draft.origin.echo = read_bool("echo", value);
}

void read_model(const json& value, RequestDraft& draft) {
  draft.origin.model = read_string("model", value);
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

void read_prompt_cache_key(const json& value, RequestDraft&) {
  read_string("prompt_cache_key", value);
}

void read_safety_identifier(const json& value, RequestDraft&) {
  read_string("safety_identifier", value);
}

void read_metadata(const json& value, RequestDraft&) {
  if (!value.is_object()) {
    refuse("metadata", value, "an object is expected");
  }
}

// Fields of completions only; those of chat only are in chat_fields.cpp.
constexpr auto completion_fields = std::to_array<RequestField>({
    {"prompt", read_prompt, "", ""},
    {"add_special_tokens", read_add_special_tokens, "", ""},
    {"logprobs", read_logprobs, "", ""},
    {"echo", read_echo, "", ""},
    {"suffix", nullptr, "[\"\"]", ""},
});

// Fields with a function, then those without effect, then those accepted only at the value that changes nothing.
constexpr auto shared_fields = std::to_array<RequestField>({
    {"max_tokens", read_max_tokens, "", ""},
    {"ignore_eos", read_ignore_eos, "", ""},
    {"return_token_ids", read_return_token_ids, "", ""},
    {"model", read_model, "", ""},

    {"temperature", sampling_fields::read_temperature, "", ""},
    {"top_p", sampling_fields::read_top_p, "", ""},
    {"top_k", sampling_fields::read_top_k, "", ""},
    {"min_p", sampling_fields::read_min_p, "", ""},
    {"seed", sampling_fields::read_seed, "", ""},
    {"n", sampling_fields::read_n, "", ""},
    {"best_of", sampling_fields::read_best_of, "", ""},
    {"presence_penalty", sampling_fields::read_presence_penalty, "", ""},
    {"frequency_penalty", sampling_fields::read_frequency_penalty, "", ""},
    {"repetition_penalty", sampling_fields::read_repetition_penalty, "", ""},
    {"logit_bias", sampling_fields::read_logit_bias, "", ""},
    {"stop", sampling_fields::read_stop, "", ""},
    {"stop_token_ids", sampling_fields::read_stop_token_ids, "", ""},
    {"include_stop_str_in_output", sampling_fields::read_include_stop, "", ""},
    {"min_tokens", sampling_fields::read_min_tokens, "", ""},

    {"user", read_user, "", ""},
    {"metadata", read_metadata, "", ""},
    {"request_id", read_request_id, "", ""},
    {"cache_salt", read_cache_salt, "", ""},
    {"prompt_cache_key", read_prompt_cache_key, "", ""},
    {"safety_identifier", read_safety_identifier, "", ""},

    {"use_beam_search", nullptr, "[false]", ""},
    {"length_penalty", nullptr, "[1]", ""},
    {"allowed_token_ids", nullptr, "[]", ""},
    {"bad_words", nullptr, "[[]]", ""},
    {"logits_processors", nullptr, "[[]]", ""},
    {"stream", nullptr, "[false]", ""},
    {"stream_options", nullptr, "[]", ""},
    {"prompt_logprobs", nullptr, "[]", ""},
    {"prompt_embeds", nullptr, "[]", ""},
    {"truncate_prompt_tokens", nullptr, "[]", ""},
    {"skip_special_tokens", nullptr, "[true]", ""},
    {"spaces_between_special_tokens", nullptr, "[true]", ""},
    {"return_tokens_as_token_ids", nullptr, "[false]", ""},
    {"response_format", nullptr, R"([{"type": "text"}])", ""},
    {"structured_outputs", nullptr, "[]", ""},
    {"guided_json", nullptr, "[]", ""},
    {"guided_regex", nullptr, "[]", ""},
    {"guided_choice", nullptr, "[]", ""},
    {"guided_grammar", nullptr, "[]", ""},
    {"guided_decoding_backend", nullptr, "[]", ""},
    {"guided_whitespace_pattern", nullptr, "[]", ""},
    {"store", nullptr, "[false]", ""},
    {"prompt_cache_retention", nullptr, "[]", ""},
    {"priority", nullptr, "[0]", ""},
    {"service_tier", nullptr, R"(["auto", "default"])", ""},
    {"kv_transfer_params", nullptr, "[]", ""},
    {"vllm_xargs", nullptr, "[{}]", ""},
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

std::span<const RequestField> own_fields(bool is_chat) {
  return is_chat ? chat_fields() : std::span<const RequestField>(completion_fields);
}

const RequestField* find_field(std::span<const RequestField> fields, std::string_view name) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& row) { return row.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

[[noreturn]] void refuse_unknown(const std::string& name, bool is_chat) {
  constexpr std::size_t longest_typo = 40;
  std::string message = fmt::format("unknown field \"{}\"", excerpt(name, longest_typo));
  if (name.size() <= longest_typo) {
    const auto distance = [&](const RequestField& field) { return edit_distance(name, field.name); };
    const std::vector<RequestField> fields = request_fields(is_chat);
    const auto nearest = std::min_element(fields.begin(), fields.end(),
                                          [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    if (distance(*nearest) <= std::max<std::size_t>(2, name.size() / 3)) {
      message += fmt::format("; did you mean \"{}\"?", nearest->name);
    }
  }
  throw LineError(excerpt(name, longest_typo), message);
}

void read_field(const std::string& name, const json& value, RequestDraft& draft) {
  const bool is_chat = draft.origin.is_chat;
  const RequestField* field = find_field(own_fields(is_chat), name);
  if (field == nullptr) {
    field = find_field(shared_fields, name);
  }
  const bool is_other = field == nullptr && find_field(own_fields(!is_chat), name) != nullptr;
  if (field == nullptr && !is_other) {
    refuse_unknown(name, is_chat);
  }
  if (value.is_null()) {
    return;
  }
  if (is_other) {
    refuse(name, value, is_chat ? "a field of completions, not of chat" : "a field of chat, not of completions");
  }
  if (field->read != nullptr) {
    field->read(value, draft);
  } else {
    require_neutral(*field, value);
  }
}

// What only all fields together say.
void join_fields(RequestDraft& draft) {
  if (draft.best_of && *draft.best_of != draft.origin.num_samples) {
    throw LineError("best_of", fmt::format("best_of {}: only the value of n ({}) is supported", *draft.best_of,
                                           draft.origin.num_samples));
  }
  if (draft.origin.is_chat) {
    join_chat_fields(draft);
    return;
  }
  if (draft.request.prompt.empty()) {
    throw LineError("prompt", "prompt: missing; a string or an array of token ids is expected");
  }
  if (draft.max_tokens == 0 && !draft.origin.echo) {
    throw LineError("max_tokens", "max_tokens 0: an integer of at least 1 is expected (0 only with echo)");
  }
  draft.request.scores_prompt = draft.origin.echo && draft.request.num_logprobs >= 0;
}

}  // namespace

std::vector<RequestField> request_fields(bool is_chat) {
  const std::span<const RequestField> own = own_fields(is_chat);
  std::vector<RequestField> fields(own.begin(), own.end());
  fields.insert(fields.end(), shared_fields.begin(), shared_fields.end());
  return fields;
}

std::vector<std::int32_t> read_prompt_text(const std::string& text, const RequestDraft& draft) {
  const char* field = draft.prompt_field();
  // A chat template writes the special tokens that it wants.
  const bool adds_special_tokens = draft.adds_special_tokens && !draft.origin.is_chat;
  const std::vector<std::int32_t> ids =
      adds_special_tokens ? draft.tokenizer->encode_prompt(text) : draft.tokenizer->encode(text);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= draft.vocab_size) {
      throw LineError(field, fmt::format("{}: the text has token {}, the model knows only ids from 0 to {}", field, id,
                                         draft.vocab_size - 1));
    }
  }
  return ids;
}

void read_request_fields(const json& body, RequestDraft& draft) {
  for (const auto& [name, value] : body.items()) {
    read_field(name, value, draft);
  }
  join_fields(draft);
}

}  // namespace metro
