#include "tokenizer/json_components.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "tokenizer/json_fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>

namespace metro::text {

using nlohmann::json;

namespace {

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::checkpoint, where + ": " + reason);
}

// The value of a name in a table, or an error that lists the names.
template <class T, std::size_t size>
T named(const std::array<std::pair<std::string_view, T>, size>& table, const std::string& name,
        const std::string& where) {
  std::vector<std::string_view> names;
  for (const auto& [known, value] : table) {
    if (known == name) {
      return value;
    }
    names.push_back(known);
  }
  fail(where, fmt::format("{:?} is not supported; supported are {}", name, fmt::join(names, ", ")));
}

struct Pattern {
  std::string text;
  Regex::Syntax syntax;
};

// {"String": "a"} or {"Regex": "a+"}
Pattern read_pattern(const json& component, const std::string& component_where) {
  const std::string where = component_where + ": pattern";
  const json& pattern = object_with(require_field(component, "pattern", component_where), {"Regex", "String"}, where);
  if (pattern.size() != 1) {
    fail(where, "either Regex or String is needed");
  }
  const bool is_regex = pattern.contains("Regex");
  Pattern read{string_field(pattern, is_regex ? "Regex" : "String", where),
               is_regex ? Regex::Syntax::oniguruma : Regex::Syntax::literal};
  return read;
}

// As read_pattern, of a replacement: the empty text would be replaced everywhere.
Pattern read_replaced(const json& component, const std::string& where) {
  object_with(component, {"type", "pattern", "content"}, where);
  Pattern pattern = read_pattern(component, where);
  if (pattern.text.empty()) {
    fail(where, "pattern: a text is needed, not an empty one");
  }
  return pattern;
}

enum class NormalizerType { nfc, nfd, nfkc, nfkd, prepend, replace, sequence };

void append_normalizer(const json& component, const std::string& where, std::vector<NormalizationRule>& rules) {
  using enum NormalizerType;
  constexpr std::array<std::pair<std::string_view, NormalizerType>, 7> types = {{{"NFC", nfc},
                                                                                 {"NFD", nfd},
                                                                                 {"NFKC", nfkc},
                                                                                 {"NFKD", nfkd},
                                                                                 {"Prepend", prepend},
                                                                                 {"Replace", replace},
                                                                                 {"Sequence", sequence}}};
  const auto take_form = [&](NormalForm form) {
    object_with(component, {"type"}, where);
    rules.emplace_back(form);
  };
  switch (named(types, type_of(component, where), where)) {
    case nfc:
      return take_form(NormalForm::nfc);
    case nfd:
      return take_form(NormalForm::nfd);
    case nfkc:
      return take_form(NormalForm::nfkc);
    case nfkd:
      return take_form(NormalForm::nfkd);
    case prepend:
      object_with(component, {"type", "prepend"}, where);
      rules.emplace_back(PrependRule{string_field(component, "prepend", where)});
      return;
    case replace: {
      const Pattern pattern = read_replaced(component, where);
      rules.emplace_back(ReplaceRule{pattern.text, pattern.syntax, string_field(component, "content", where)});
      return;
    }
    case sequence:
      object_with(component, {"type", "normalizers"}, where);
      for (const json& part : list_field(component, "normalizers", where)) {
        append_normalizer(part, where, rules);
      }
      return;
  }
}

SplitRule read_split(const json& component, const std::string& where) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> behaviors = {
      {{"Isolated", SplitBehavior::isolated},
       {"Removed", SplitBehavior::removed},
       {"MergedWithPrevious", SplitBehavior::merged_with_previous},
       {"MergedWithNext", SplitBehavior::merged_with_next},
       {"Contiguous", SplitBehavior::contiguous}}};
  object_with(component, {"type", "pattern", "behavior", "invert"}, where);
  const Pattern pattern = read_pattern(component, where);
  return {.pattern = pattern.text,
          .syntax = pattern.syntax,
          .behavior = named(behaviors, string_field(component, "behavior", where), where + ": behavior"),
          .invert = bool_field(component, "invert", where)};
}

// ByteLevel and Metaspace end the pre-tokeniser: behind them the text is spelled in another way.
class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(std::string where) : where_(std::move(where)) {}

  PreTokenizerComponent read(const json& component) {
    read_component(component);
    return {rules_, end_ == "ByteLevel"};
  }

 private:
  enum class Type { byte_level, metaspace, split, digits, sequence };

  void read_component(const json& component) {
    constexpr std::array<std::pair<std::string_view, Type>, 5> types = {{{"ByteLevel", Type::byte_level},
                                                                         {"Metaspace", Type::metaspace},
                                                                         {"Split", Type::split},
                                                                         {"Digits", Type::digits},
                                                                         {"Sequence", Type::sequence}}};
    const std::string name = type_of(component, where_);
    const Type type = named(types, name, where_);
    const std::string where = where_ + ": " + name;
    if (!end_.empty()) {
      fail(where, fmt::format("nothing is supported behind {}", end_));
    }
    switch (type) {
      case Type::byte_level:
        return read_byte_level(component, where);
      case Type::metaspace:
        return read_metaspace(component, where);
      case Type::split:
        rules_.splits.push_back(read_split(component, where));
        return;
      case Type::digits:
        return read_digits(component, where);
      case Type::sequence:
        return read_sequence(component, where);
    }
  }

  void read_byte_level(const json& component, const std::string& where) {
    object_with(component, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, where);
    bool_field(component, "trim_offsets", where, true);  // about offsets, which are not given out
    rules_.add_prefix_space = bool_field(component, "add_prefix_space", where);
    rules_.split_like_gpt2 = bool_field(component, "use_regex", where, true);
    end_ = "ByteLevel";
  }

  void read_metaspace(const json& component, const std::string& where) {
    constexpr std::array<std::pair<std::string_view, PrependScheme>, 3> schemes = {
        {{"always", PrependScheme::always}, {"first", PrependScheme::first}, {"never", PrependScheme::never}}};
    object_with(component, {"type", "replacement", "str_rep", "prepend_scheme", "add_prefix_space", "split"}, where);
    const std::string mark = string_field(component, "replacement", where);
    if (mark.empty() || sequence_at(mark, 0).length != mark.size()) {
      fail(where, fmt::format("replacement must be one character, not {:?}", mark));
    }
    // Old files say add_prefix_space, which prepend_scheme takes the place of.
    const std::string scheme = find_field(component, "prepend_scheme") != nullptr
                                   ? string_field(component, "prepend_scheme", where)
                               : bool_field(component, "add_prefix_space", where, true) ? "always"
                                                                                        : "never";
    rules_.metaspace = {.mark = mark,
                        .scheme = named(schemes, scheme, where + ": prepend_scheme"),
                        .split = bool_field(component, "split", where, true)};
    end_ = "Metaspace";
  }

  void read_digits(const json& component, const std::string& where) {
    object_with(component, {"type", "individual_digits"}, where);
    const bool is_individual = bool_field(component, "individual_digits", where);
    rules_.splits.push_back({.pattern = is_individual ? R"(\p{N})" : R"(\p{N}+)"});
  }

  void read_sequence(const json& component, const std::string& where) {
    object_with(component, {"type", "pretokenizers"}, where);
    for (const json& part : list_field(component, "pretokenizers", where)) {
      read_component(part);
    }
  }

  std::string where_;
  PreTokenizerRules rules_;
  std::string end_;  // ByteLevel or Metaspace, if it was there
};

}  // namespace

std::vector<NormalizationRule> read_normalizer(const json& component, const std::string& where) {
  std::vector<NormalizationRule> rules;
  append_normalizer(component, where, rules);
  return rules;
}

PreTokenizerComponent read_pre_tokenizer(const json& component, const std::string& where) {
  return PreTokenizerReader(where).read(component);
}

}  // namespace metro::text
