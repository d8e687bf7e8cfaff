#include "requests/request_fields.hpp"

#include "requests/sampling_fields.hpp"

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

std::vector<std::int32_t> read_prompt_ids(const json& values, std::int64_t vocab_size) {
  for (const json& value : values) {
    if (value.is_string() || value.is_array()) {
      throw LineError("prompt", fmt::format("prompt: an array of {} is not supported; give one prompt per line",
                                            value.is_string() ? "strings" : "arrays"));
    }
  }
  return read_token_ids("prompt", values, vocab_size);
}

std::vector<std::int32_t> read_text(const json& text, const RequestDraft& draft) {
  if (draft.tokenizer == nullptr) {
    throw LineError("prompt", "prompt: the checkpoint has no tokenizer; give token ids instead of text");
  }
  const auto& utf8 = text.get_ref<const std::string&>();
  const std::vector<std::int32_t> ids =
      draft.adds_special_tokens ? draft.tokenizer->encode_prompt(utf8) : draft.tokenizer->encode(utf8);
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
  draft.request.prompt = value.is_string() ? read_text(value, draft) : read_prompt_ids(value, draft.vocab_size);
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

constexpr std::string_view chat_only = "a field of chat, which is not supported";

// Fields with a function, then those without effect, then those accepted only at the value that changes nothing.
constexpr auto table = std::to_array<RequestField>({
    {"prompt", read_prompt, "", ""},
    {"add_special_tokens", read_add_special_tokens, "", ""},
    {"max_tokens", read_max_tokens, "", ""},
    {"logprobs", read_logprobs, "", ""},
    {"ignore_eos", read_ignore_eos, "", ""},
    {"return_token_ids", read_return_token_ids, "", ""},
    {"echo", read_echo, "", ""},
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
    {"suffix", nullptr, "[\"\"]", ""},
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
    {"messages", nullptr, "[]", "chat is not supported; give \"prompt\""},
    {"max_completion_tokens", nullptr, "[]", "a field of chat, which is not supported; give \"max_tokens\""},
    {"top_logprobs", nullptr, "[]", "a field of chat, which is not supported; give \"logprobs\""},
    {"audio", nullptr, "[]", chat_only},
    {"function_call", nullptr, "[]", chat_only},
    {"functions", nullptr, "[]", chat_only},
    {"tools", nullptr, "[]", chat_only},
    {"tool_choice", nullptr, "[]", chat_only},
    {"parallel_tool_calls", nullptr, "[]", chat_only},
    {"modalities", nullptr, "[]", chat_only},
    {"prediction", nullptr, "[]", chat_only},
    {"reasoning_effort", nullptr, "[]", chat_only},
    {"include_reasoning", nullptr, "[]", chat_only},
    {"thinking_token_budget", nullptr, "[]", chat_only},
    {"verbosity", nullptr, "[]", chat_only},
    {"web_search_options", nullptr, "[]", chat_only},
    {"add_generation_prompt", nullptr, "[]", chat_only},
    {"continue_final_message", nullptr, "[]", chat_only},
    {"chat_template", nullptr, "[]", chat_only},
    {"chat_template_kwargs", nullptr, "[]", chat_only},
    {"documents", nullptr, "[]", chat_only},
    {"mm_processor_kwargs", nullptr, "[]", chat_only},
    {"media_io_kwargs", nullptr, "[]", chat_only},
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

// What only all fields together say.
void join_fields(RequestDraft& draft) {
  if (draft.request.prompt.empty()) {
    throw LineError("prompt", "prompt: missing; a string or an array of token ids is expected");
  }
  if (draft.best_of && *draft.best_of != draft.origin.num_samples) {
    throw LineError("best_of", fmt::format("best_of {}: only the value of n ({}) is supported", *draft.best_of,
                                           draft.origin.num_samples));
  }
  if (draft.max_tokens == 0 && !draft.origin.echo) {
    throw LineError("max_tokens", "max_tokens 0: an integer of at least 1 is expected (0 only with echo)");
  }
  draft.request.scores_prompt = draft.origin.echo && draft.request.num_logprobs >= 0;
}

}  // namespace

std::span<const RequestField> request_fields() {
  return table;
}

void read_request_fields(const json& body, RequestDraft& draft) {
  for (const auto& [name, value] : body.items()) {
    const auto field =
        std::find_if(table.begin(), table.end(), [&wanted = name](const auto& row) { return row.name == wanted; });
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
  join_fields(draft);
}

}  // namespace metro
