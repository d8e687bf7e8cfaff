#include "base/error.hpp"
#include "tokenizer/json_components.hpp"
#include "tokenizer/json_fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdint>

namespace metro::text {

using nlohmann::json;

namespace {

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::checkpoint, where + ": " + reason);
}

// The decoder of tokenizers with byte fallback: a Sequence of Replace, ByteFallback, Fuse and Strip, in this order; all
// but Replace at most once. Fuse joins the tokens, so that Strip is about the beginning of the text.
class FallbackDecoderReader {
 public:
  explicit FallbackDecoderReader(std::string where) : where_(std::move(where)) {}

  DecoderRules read(const json& sequence) {
    object_with(sequence, {"type", "decoders"}, where_);
    for (const json& part : list_field(sequence, "decoders", where_)) {
      read_part(part);
    }
    return rules_;
  }

 private:
  enum class Stage { replace, byte_fallback, fuse, strip };

  void read_part(const json& part) {
    const std::string type = type_of(part, where_);
    const std::string where = where_ + ": " + type;
    if (type == "Replace") {
      enter(Stage::replace, where);
      read_replace(part, where);
    } else if (type == "ByteFallback") {
      enter(Stage::byte_fallback, where);
      object_with(part, {"type"}, where);
      rules_.byte_fallback = true;
    } else if (type == "Fuse") {
      enter(Stage::fuse, where);
      object_with(part, {"type"}, where);
    } else if (type == "Strip") {
      if (stage_ != Stage::fuse) {
        fail(where, "it is supported behind Fuse only");
      }
      enter(Stage::strip, where);
      read_strip(part, where);
    } else {
      fail(where_, fmt::format("{:?} is not supported; supported are Replace, ByteFallback, Fuse, Strip", type));
    }
  }

  void enter(Stage stage, const std::string& where) {
    if (stage < stage_ || (stage == stage_ && stage != Stage::replace)) {
      fail(where, "the order must be Replace, ByteFallback, Fuse, Strip");
    }
    stage_ = stage;
  }

  void read_replace(const json& part, const std::string& where) {
    object_with(part, {"type", "pattern", "content"}, where);
    const json& pattern = object_with(require_field(part, "pattern", where), {"String"}, where + ": pattern");
    const std::string text = string_field(pattern, "String", where + ": pattern");
    if (text.empty()) {
      fail(where, "pattern: a text is needed, not an empty one");
    }
    rules_.replacements.emplace_back(text, string_field(part, "content", where));
  }

  void read_strip(const json& part, const std::string& where) {
    object_with(part, {"type", "content", "start", "stop"}, where);
    if (string_field(part, "content", where) != " ") {
      fail(where, "content must be one space");
    }
    if (require_field(part, "stop", where) != 0) {
      fail(where, "stop must be 0");
    }
    const json& start = require_field(part, "start", where);
    if (start != 0 && start != 1) {
      fail(where, "start must be 0 or 1");
    }
    rules_.num_leading_spaces = start.get<std::size_t>();
  }

  std::string where_;
  DecoderRules rules_;
  Stage stage_ = Stage::replace;
};

// TemplateProcessing: {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": ...}.
class TemplateReader {
 public:
  explicit TemplateReader(std::string where) : where_(std::move(where)) {}

  PromptFrame read(const json& component) {
    object_with(component, {"type", "single", "pair", "special_tokens"}, where_);
    const json* tokens = find_field(component, "special_tokens");
    for (const json& item : list_field(component, "single", where_)) {
      read_item(item, tokens);
    }
    if (!has_text_) {
      fail(where_, "single has no Sequence A, so that the text would be left out");
    }
    return frame_;
  }

 private:
  void read_item(const json& item, const json* tokens) {
    const std::string where = where_ + ": single";
    object_with(item, {"SpecialToken", "Sequence"}, where);
    if (const json* sequence = find_field(item, "Sequence")) {
      object_with(*sequence, {"id", "type_id"}, where);
      if (has_text_ || string_field(*sequence, "id", where) != "A") {
        fail(where, "one Sequence A is supported, and no other");
      }
      has_text_ = true;
      return;
    }
    const json& token = object_with(require_field(item, "SpecialToken", where), {"id", "type_id"}, where);
    append_ids(string_field(token, "id", where), tokens, has_text_ ? frame_.after : frame_.before);
  }

  void append_ids(const std::string& name, const json* tokens, std::vector<std::int32_t>& ids) const {
    const std::string where = where_ + ": special_tokens";
    const json* token = tokens != nullptr && tokens->is_object() ? find_field(*tokens, name.c_str()) : nullptr;
    if (token == nullptr) {
      fail(where, fmt::format("{:?} is missing, which single names", name));
    }
    object_with(*token, {"id", "ids", "tokens"}, where);
    for (const json& id : list_field(*token, "ids", where)) {
      ids.push_back(token_id_of(id, where));
    }
  }

  std::string where_;
  PromptFrame frame_;
  bool has_text_ = false;
};

}  // namespace

DecoderRules read_decoder(const json& component, const std::string& where) {
  const std::string type = type_of(component, where);
  if (type == "ByteLevel") {
    DecoderRules rules;
    rules.byte_level = true;
    return rules;
  }
  if (type != "Sequence") {
    fail(where, fmt::format("{:?} is not supported; supported are ByteLevel, Sequence", type));
  }
  return FallbackDecoderReader(where).read(component);
}

PromptFrame read_post_processor(const json& component, const std::string& where) {
  const std::string type = type_of(component, where);
  if (type == "ByteLevel") {
    return {};  // it is about offsets, which are not given out
  }
  if (type == "TemplateProcessing") {
    return TemplateReader(where + ": " + type).read(component);
  }
  if (type != "Sequence") {
    fail(where, fmt::format("{:?} is not supported; supported are ByteLevel, TemplateProcessing, Sequence", type));
  }
  object_with(component, {"type", "processors"}, where);
  PromptFrame frame;
  for (const json& part : list_field(component, "processors", where)) {
    // Each puts its tokens around what those before it have made.
    const PromptFrame outer = read_post_processor(part, where);
    frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
    frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
  }
  return frame;
}

}  // namespace metro::text
