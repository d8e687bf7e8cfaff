// The chat templates of a model, and what they may name beside the messages: found in the files of its tokenizer.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace metro {

struct ChatTemplates {
  std::map<std::string, std::string> templates;  // "default", maybe "tool_use" and others; empty: the model has none
  std::map<std::string, std::string> variables;  // "bos_token" and its kin, those that there are

  bool operator==(const ChatTemplates&) const = default;
};

// Returns the content of a file by name, or nothing if there is none.
using ModelFiles = std::function<std::optional<std::string>(const std::string& name)>;

// Templates are those of chat_template.jinja (with tool_use.jinja beside it), else chat_template in
// tokenizer_config.json (a text, or a list of {name, template}), else chat_template in chat_template.json. Tokens are
// those of tokenizer_config.json, else of special_tokens_map.json. Throws Error(checkpoint), message beginning with the
// name of the file.
ChatTemplates find_chat_templates(const ModelFiles& files);

}  // namespace metro
