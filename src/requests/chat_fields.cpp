#include "requests/chat_fields.hpp"

#include "requests/chat_messages.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>

namespace metro {

using nlohmann::json;

namespace {

constexpr std::int64_t most_top_logprobs = 20;

void read_messages(const json& value, RequestDraft& draft) {
  check_messages(value);
  draft.chat.has_messages = true;
}

void read_max_completion_tokens(const json& value, RequestDraft& draft) {
  draft.chat.max_completion_tokens =
      read_integer("max_completion_tokens", value, 1, std::numeric_limits<std::int64_t>::max(),
                   "an integer of at least 1 is expected");
}

void read_logprobs(const json& value, RequestDraft& draft) {
  draft.chat.logprobs = read_bool("logprobs", value);
}

void read_top_logprobs(const json& value, RequestDraft& draft) {
  const std::int64_t most = std::min(most_top_logprobs, draft.vocab_size);
  draft.chat.top_logprobs =
      read_integer("top_logprobs", value, 0, most, fmt::format("an integer from 0 to {} is expected", most));
}

void read_tools(const json& value, RequestDraft&) {
  check_tools(value);
}

void read_tool_choice(const json& value, RequestDraft&) {
  if (value != "none" && value != "auto") {
    refuse("tool_choice", value, "only \"none\" and \"auto\" are supported: nothing forces a call");
  }
}

void read_add_generation_prompt(const json& value, RequestDraft& draft) {
  draft.chat.add_generation_prompt = read_bool("add_generation_prompt", value);
}

void read_continue_final_message(const json& value, RequestDraft& draft) {
  draft.chat.continues_message = read_bool("continue_final_message", value);
}

void read_reasoning_effort(const json& value, RequestDraft&) {
  read_string("reasoning_effort", value);
}

void read_chat_template_kwargs(const json& value, RequestDraft&) {
  constexpr std::array taken = {"messages",     "tools", "documents", "add_generation_prompt", "continue_final_message",
                                "chat_template"};
  if (!value.is_object()) {
    refuse("chat_template_kwargs", value, "an object is expected");
  }
  for (const auto& [name, unused] : value.items()) {
    if (std::find(taken.begin(), taken.end(), name) != taken.end()) {
      throw LineError("chat_template_kwargs",
                      fmt::format("chat_template_kwargs: {} is no variable of its own but a field of the body", name));
    }
  }
}

constexpr auto table = std::to_array<RequestField>({
    {"messages", read_messages, "", ""},
    {"max_completion_tokens", read_max_completion_tokens, "", ""},
    {"logprobs", read_logprobs, "", ""},
    {"top_logprobs", read_top_logprobs, "", ""},
    {"tools", read_tools, "", ""},
    {"tool_choice", read_tool_choice, "", ""},
    {"add_generation_prompt", read_add_generation_prompt, "", ""},
    {"continue_final_message", read_continue_final_message, "", ""},
    {"reasoning_effort", read_reasoning_effort, "", ""},
    {"chat_template_kwargs", read_chat_template_kwargs, "", ""},

    {"chat_template", nullptr, "[]", "only the template of the checkpoint is used"},
    {"parallel_tool_calls", nullptr, "[true]", ""},
    {"include_reasoning", nullptr, "[true]", ""},
    {"modalities", nullptr, R"([["text"]])", ""},
    {"echo", nullptr, "[false]", ""},
    {"add_special_tokens", nullptr, "[false]", "only false is supported: the template writes special tokens"},
    {"audio", nullptr, "[]", ""},
    {"function_call", nullptr, "[]", "not supported; use tool_choice"},
    {"functions", nullptr, "[]", "not supported; use tools"},
    {"prediction", nullptr, "[]", ""},
    {"thinking_token_budget", nullptr, "[]", ""},
    {"verbosity", nullptr, "[]", ""},
    {"web_search_options", nullptr, "[]", ""},
    {"documents", nullptr, "[]", ""},
    {"mm_processor_kwargs", nullptr, "[]", ""},
    {"media_io_kwargs", nullptr, "[]", ""},
});

void settle_max_tokens(RequestDraft& draft) {
  if (draft.max_tokens == 0) {
    throw LineError("max_tokens", "max_tokens 0: an integer of at least 1 is expected");
  }
  if (const auto& other = draft.chat.max_completion_tokens) {
    if (draft.max_tokens && *draft.max_tokens != *other) {
      throw LineError(
          "max_completion_tokens",
          fmt::format("max_completion_tokens {}: max_tokens says {}; give one of them", *other, *draft.max_tokens));
    }
    draft.max_tokens = other;
    draft.max_tokens_field = "max_completion_tokens";
  }
}

void settle_logprobs(RequestDraft& draft) {
  const std::int64_t num_top = draft.chat.top_logprobs.value_or(0);
  if (num_top > 0 && !draft.chat.logprobs) {
    throw LineError("top_logprobs", fmt::format("top_logprobs {}: only allowed with \"logprobs\": true", num_top));
  }
  if (draft.chat.logprobs) {
    draft.request.num_logprobs = static_cast<std::int32_t>(num_top);
  }
}

}  // namespace

std::span<const RequestField> chat_fields() {
  return table;
}

void join_chat_fields(RequestDraft& draft) {
  if (!draft.chat.has_messages) {
    throw LineError("messages", "messages: missing; an array of at least one message is expected");
  }
  if (draft.chat.continues_message && draft.chat.add_generation_prompt.value_or(false)) {
    throw LineError("continue_final_message",
                    "continue_final_message true: not allowed with add_generation_prompt true, which begins a new "
                    "message");
  }
  settle_max_tokens(draft);
  settle_logprobs(draft);
  if (draft.renderer == nullptr || draft.line == nullptr) {
    throw LineError("messages", "messages: chat is not supported here; give \"prompt\"");
  }
  if (draft.tokenizer == nullptr) {
    throw LineError("messages", "messages: the checkpoint has no tokenizer; give token ids as \"prompt\"");
  }
  draft.request.prompt = read_prompt_text(draft.renderer->render(*draft.line, draft.origin), draft);
  if (draft.request.prompt.empty()) {
    throw LineError("messages", "messages: the chat template makes no tokens of it; at least one is needed");
  }
}

}  // namespace metro
