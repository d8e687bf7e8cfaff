#include "chat/chat_templates.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/utf8.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>

namespace metro {

using nlohmann::json;

namespace {

constexpr const char* config_file = "tokenizer_config.json";
constexpr const char* field = "chat_template";

// What transformers gives to a template by name.
constexpr std::array token_names = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw Error(ExitCode::checkpoint, fmt::format("{}: {}", file, what));
}

// An empty object if there is no such file.
json read_object(const ModelFiles& files, const std::string& name) {
  const std::optional<std::string> content = files(name);
  if (!content) {
    return json::object();
  }
  json object = parse_json(*content, name, ExitCode::checkpoint);
  if (!object.is_object()) {
    fail(name, "an object is expected");
  }
  return object;
}

// The text of a file, which is not JSON and so not checked by reading it.
std::optional<std::string> read_text(const ModelFiles& files, const std::string& name) {
  std::optional<std::string> content = files(name);
  if (content) {
    if (const auto at = text::first_invalid_byte(*content)) {
      fail(name, fmt::format("not valid UTF-8 (byte {})", *at));
    }
  }
  return content;
}

std::map<std::string, std::string> templates_of(const json& object, const std::string& file) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) {
    return {};
  }
  if (found->is_string()) {
    return {{"default", found->get<std::string>()}};
  }
  std::map<std::string, std::string> templates;
  if (!found->is_array() || found->empty()) {
    fail(file, fmt::format("{}: a text or a list of {{name, template}} is expected", field));
  }
  for (const json& entry : *found) {
    const bool is_template = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                             entry.contains("template") && entry["template"].is_string();
    if (!is_template) {
      fail(file,
           fmt::format("{}[{}]: an object with the texts name and template is expected", field, templates.size()));
    }
    const auto& name = entry["name"].get_ref<const std::string&>();
    if (!templates.emplace(name, entry["template"].get<std::string>()).second) {
      fail(file, fmt::format("{}: the name \"{}\" is there twice", field, excerpt(name, most_quoted)));
    }
  }
  return templates;
}

std::map<std::string, std::string> find_templates(const ModelFiles& files, const json& config) {
  if (const std::optional<std::string> text = read_text(files, "chat_template.jinja")) {
    std::map<std::string, std::string> templates{{"default", *text}};
    if (const std::optional<std::string> with_tools = read_text(files, "tool_use.jinja")) {
      templates["tool_use"] = *with_tools;
    }
    return templates;
  }
  auto templates = templates_of(config, config_file);
  if (templates.empty()) {
    constexpr const char* own_file = "chat_template.json";
    templates = templates_of(read_object(files, own_file), own_file);
  }
  return templates;
}

// A token is its text, or an object with that as content.
void add_tokens(const json& object, const std::string& file, std::map<std::string, std::string>& variables) {
  for (const char* name : token_names) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) {
      continue;
    }
    const bool has_content = found->is_object() && found->contains("content");
    const json& content = has_content ? (*found)["content"] : *found;
    if (!content.is_string()) {
      fail(file, fmt::format("{}: a text or an object with the text content is expected", name));
    }
    variables.emplace(name, content.get<std::string>());
  }
}

}  // namespace

ChatTemplates find_chat_templates(const ModelFiles& files) {
  const json config = read_object(files, config_file);
  ChatTemplates found;
  found.templates = find_templates(files, config);
  if (found.templates.empty()) {
    return found;
  }
  add_tokens(config, config_file, found.variables);
  constexpr const char* map_file = "special_tokens_map.json";
  add_tokens(read_object(files, map_file), map_file, found.variables);
  return found;
}

}  // namespace metro
