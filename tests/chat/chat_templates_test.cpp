// Where templates and special tokens of a model are found.
#include "chat/chat_templates.hpp"

#include "chat/renderer_of.hpp"
#include "support/expect_error.hpp"

using metro::ChatTemplates;
using metro::ExitCode;
using metro::find_chat_templates;
using metro::test::expect_error;
using metro::test::files_of;

namespace {

using Texts = std::map<std::string, std::string>;

Texts templates_of(const Texts& files) {
  return find_chat_templates(files_of(files)).templates;
}

}  // namespace

TEST_CASE("a template of its own file comes before the configuration, and that before chat_template.json") {
  const std::string config = R"({"chat_template": "config"})";
  const std::string json_file = R"({"chat_template": "json"})";

  CHECK(templates_of(
            {{"chat_template.jinja", "own"}, {"tokenizer_config.json", config}, {"chat_template.json", json_file}}) ==
        Texts{{"default", "own"}});
  CHECK(templates_of({{"tokenizer_config.json", config}, {"chat_template.json", json_file}}) ==
        Texts{{"default", "config"}});
  CHECK(templates_of({{"tokenizer_config.json", "{}"}, {"chat_template.json", json_file}}) ==
        Texts{{"default", "json"}});
  CHECK(templates_of({{"chat_template.jinja", "own"}, {"tool_use.jinja", "tools"}}) ==
        Texts{{"default", "own"}, {"tool_use", "tools"}});
  CHECK(templates_of({}).empty());
}

TEST_CASE("a list of templates is known by its names") {
  const std::string config =
      R"({"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]})";

  CHECK(templates_of({{"tokenizer_config.json", config}}) == Texts{{"default", "a"}, {"tool_use", "b"}});
}

TEST_CASE("special tokens are texts or objects, of the configuration first") {
  const ChatTemplates found = find_chat_templates(
      files_of({{"chat_template.jinja", "x"},
                {"tokenizer_config.json",
                 R"({"bos_token": {"__type": "AddedToken", "content": "<s>", "special": true}, "eos_token": "</s>",
                     "pad_token": null, "model_max_length": 5, "add_bos_token": true})"},
                {"special_tokens_map.json", R"({"eos_token": "other", "unk_token": {"content": "<unk>"}})"}}));

  CHECK(found.variables == Texts{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}});
}

TEST_CASE("a template that is no UTF-8 is refused, not read with other characters in their place") {
  expect_error(ExitCode::checkpoint, {"chat_template.jinja: not valid UTF-8 (byte 2)"}, [] {
    find_chat_templates(files_of({{"chat_template.jinja", "ab\xff"}}));
  });
  expect_error(ExitCode::checkpoint, {"tool_use.jinja: not valid UTF-8 (byte 0)"}, [] {
    find_chat_templates(files_of({{"chat_template.jinja", "ab"}, {"tool_use.jinja", "\xc3"}}));
  });
}

TEST_CASE("malformed files are refused by name") {
  const auto refused = [](const std::string& name, const std::string& content, const char* message) {
    expect_error(ExitCode::checkpoint, {message}, [&] { templates_of({{name, content}}); });
  };

  refused("tokenizer_config.json", "[]", "tokenizer_config.json: an object is expected");
  refused("tokenizer_config.json", "{", "tokenizer_config.json");
  refused("tokenizer_config.json", R"({"chat_template": []})",
          "tokenizer_config.json: chat_template: a text or a list of {name, template} is expected");
  refused("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})",
          "tokenizer_config.json: chat_template[0]: an object with the texts name and template is expected");
  refused("tokenizer_config.json",
          R"({"chat_template": [{"name": "a", "template": ""}, {"name": "a", "template": ""}]})",
          "tokenizer_config.json: chat_template: the name \"a\" is there twice");
  refused("tokenizer_config.json", R"({"chat_template": "x", "bos_token": 5})",
          "tokenizer_config.json: bos_token: a text or an object with the text content is expected");
  refused("chat_template.json", R"({"chat_template": 5})", "chat_template.json: chat_template: a text or a list");
}
