// The fields of a request body: one table says what each field does; the reader, the error texts and the check of
// docs/requests.md come from it.
#pragma once

#include "requests/chat_renderer.hpp"
#include "requests/field_values.hpp"
#include "requests/request.hpp"
#include "tokenizer/tokenizer.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// What a chat line says beside the fields that every line has.
struct ChatDraft {
  std::optional<std::int64_t> max_completion_tokens;
  bool logprobs = false;
  std::optional<std::int64_t> top_logprobs;
  std::optional<bool> add_generation_prompt;
  bool continues_message = false;
  bool has_messages = false;
};

// A request that is being read. What is set only when the field is there has its default settled by the reader.
struct RequestDraft {
  const Tokenizer* tokenizer = nullptr;
  ChatRenderer* renderer = nullptr;   // null: chat lines are refused
  const std::string* line = nullptr;  // the text of the whole line
  std::int64_t vocab_size = 0;
  bool adds_special_tokens = true;  // to the text of a prompt; read before it, by the order of names
  Request request;
  RequestOrigin origin;  // is_chat says which fields there are
  std::optional<std::int64_t> max_tokens;
  std::string_view max_tokens_field = "max_tokens";  // that said it
  std::optional<double> temperature;
  std::optional<std::int64_t> seed;
  std::optional<std::int64_t> best_of;
  ChatDraft chat;

  // The field that the prompt comes from.
  const char* prompt_field() const { return origin.is_chat ? "messages" : "prompt"; }
};

struct RequestField {
  std::string_view name;
  // Reads a value that is not null; throws LineError. Null pointer: the field has no function here.
  void (*read)(const nlohmann::json& value, RequestDraft& draft);
  // Without `read`: JSON array of the values that ask for what is done anyway; others are refused.
  std::string_view neutral;
  // What a refusal says is supported; empty: made from `neutral`.
  std::string_view supported;
};

// All known fields of a completions body or of a chat body, in the order of docs/requests.md.
std::vector<RequestField> request_fields(bool is_chat);

// Reads all fields of a body into the draft; null counts as absent. Throws LineError for the first field (in the order
// of their names) that is unknown, malformed or not supported, when there is no prompt, and for fields that contradict
// each other. Chat lines are rendered when all else is right.
void read_request_fields(const nlohmann::json& body, RequestDraft& draft);

// Ids of a text, which the model must know; there is a tokenizer. Throws LineError for draft.prompt_field().
std::vector<std::int32_t> read_prompt_text(const std::string& text, const RequestDraft& draft);

}  // namespace metro
