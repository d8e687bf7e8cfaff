// The fields of a request body: one table says what each field does; the reader, the error texts and the check of
// docs/requests.md come from it.
#pragma once

#include "requests/field_values.hpp"
#include "requests/request.hpp"
#include "tokenizer/tokenizer.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace metro {

// A request that is being read. What is set only when the field is there has its default settled by the reader.
struct RequestDraft {
  const Tokenizer* tokenizer = nullptr;
  std::int64_t vocab_size = 0;
  bool adds_special_tokens = true;  // to the text of a prompt; read before it, by the order of names
  Request request;
  RequestOrigin origin;
  std::optional<std::int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<std::int64_t> seed;
  std::optional<std::int64_t> best_of;
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

// All known fields, in the order of docs/requests.md.
std::span<const RequestField> request_fields();

// Reads all fields of a body into the draft; null counts as absent. Throws LineError for the first field (in the order
// of their names) that is unknown, malformed or not supported, when there is no prompt, and for fields that contradict
// each other.
void read_request_fields(const nlohmann::json& body, RequestDraft& draft);

}  // namespace metro
