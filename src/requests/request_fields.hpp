// The fields of a request body: one table says what each field does; the reader, the error texts and the check of
// docs/requests.md come from it.
#pragma once

#include "requests/request.hpp"
#include "tokenizer/tokenizer.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace metro {

// What is wrong with a line. `field` is empty when the line as a whole is wrong.
struct LineError : std::runtime_error {
  LineError(std::string in_field, const std::string& message)
      : std::runtime_error(message), field(std::move(in_field)) {}
  std::string field;
};

// A request that is being read.
struct RequestDraft {
  const Tokenizer* tokenizer = nullptr;
  std::int64_t vocab_size = 0;
  Request request;
  RequestOrigin origin;
  std::optional<std::int64_t> max_tokens;
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
// of their names) that is unknown, malformed or not supported, and when there is no prompt.
void read_request_fields(const nlohmann::json& body, RequestDraft& draft);

// Text cut to at most max_bytes at a character boundary, then "...".
std::string excerpt(std::string_view text, std::size_t max_bytes);
// The same of a value as JSON: what an error message quotes.
std::string excerpt(const nlohmann::json& value);

}  // namespace metro
