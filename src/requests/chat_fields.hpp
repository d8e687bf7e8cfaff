// The fields that only the body of a chat line has: rows of the table of fields, and what they say together.
#pragma once

#include "requests/request_fields.hpp"

#include <span>

namespace metro {

// In the order of docs/requests.md.
std::span<const RequestField> chat_fields();

// When all fields are read: what they say together, and the prompt. Throws LineError.
void join_chat_fields(RequestDraft& draft);

}  // namespace metro
