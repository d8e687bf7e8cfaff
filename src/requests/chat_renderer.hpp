// Who turns the messages of a chat line into the text of a prompt: the reader asks, src/chat answers.
#pragma once

#include "requests/request.hpp"

#include <string>

namespace metro {

class ChatRenderer {
 public:
  virtual ~ChatRenderer() = default;

  // The prompt that the model's chat template makes of `line`, the whole text of an input line whose fields have been
  // checked. Throws LineError for what the template refuses, Error for what concerns more than this line; `origin` says
  // in messages where the line stands.
  virtual std::string render(const std::string& line, const RequestOrigin& origin) = 0;
};

}  // namespace metro
