// Prompts of chat lines: those of Hugging Face transformers, and what is settled where it leaves a choice.
#include "chat/jinja_renderer.hpp"

#include "base/file.hpp"
#include "chat/renderer_of.hpp"

#include <memory>
#include <regex>

using metro::ExitCode;
using metro::JinjaRenderer;
using metro::JinjaSettings;
using metro::LineError;
using metro::test::a_line;
using metro::test::files_of;
using metro::test::origin_of_tests;
using metro::test::refusal_of;
using metro::test::rendered;
using metro::test::settings_of_tests;
using nlohmann::json;

namespace {

std::string read_data(const std::string& name) {
  return metro::read_file(METRO_TEST_DATA "/chat/" + name, ExitCode::input);
}

std::string line_with(const json& fields) {
  json line = json::parse(a_line());
  line.update(fields);
  return line.dump();
}

}  // namespace

TEST_CASE("prompts are those of transformers, and refused where transformers gives up") {
  const json golden = json::parse(read_data("golden.json"));
  JinjaSettings settings = settings_of_tests();
  settings.date = golden["date"];
  std::map<std::string, std::unique_ptr<JinjaRenderer>> renderers;

  for (const json& one : golden["cases"]) {
    INFO(one["name"].get<std::string>());
    const std::string name = one["template"];
    auto& renderer = renderers[name];
    if (!renderer) {
      renderer =
          std::make_unique<JinjaRenderer>(files_of({{"chat_template.jinja", read_data("templates/" + name + ".jinja")},
                                                    {"tokenizer_config.json", golden["variables"].dump()}}),
                                          settings);
    }
    const std::string line = one["line"];
    if (one["prompt"].is_null()) {
      CHECK_THROWS_AS(renderer->render(line, origin_of_tests()), LineError);
    } else {
      CHECK(renderer->render(line, origin_of_tests()) == one["prompt"].get<std::string>());
    }
  }
  CHECK(golden["cases"].size() == 55);
}

TEST_CASE("a chat of mistral-common becomes the text that it has there") {
  const std::string sample = read_data("mistral/no_tools.json");
  // The text shows pieces of SentencePiece, which writes spaces as U+2581.
  const std::string expected = std::regex_replace(read_data("mistral/no_tools_v1.txt"), std::regex("\u2581"), " ");
  JinjaRenderer renderer(files_of({{"chat_template.jinja", read_data("templates/inst.jinja")},
                                   {"tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})"}}),
                         settings_of_tests());

  CHECK(renderer.render(sample, origin_of_tests()) == expected);
}

TEST_CASE("lines of the batch form are rendered as those of the short form") {
  const std::string text = "{% for m in messages %}{{ m.content }}{% endfor %}{{ add_generation_prompt }}";
  const std::string body = a_line();

  CHECK(rendered(text, R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":)" + body + "}") ==
        "HiTrue");
  CHECK(rendered(text, "\xEF\xBB\xBF" + body) == "HiTrue");
}

TEST_CASE("one process renders many lines, each by itself") {
  JinjaRenderer renderer(
      files_of({{"chat_template.jinja",
                 "{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = n.x + 1 %}{{ m.content }}"
                 "{% endfor %}{{ n.x }}"}}),
      settings_of_tests());

  for (int i = 0; i < 50; ++i) {
    const json line{{"messages", {{{"role", "user"}, {"content", std::to_string(i)}}}}};
    CHECK(renderer.render(line.dump(), origin_of_tests()) == std::to_string(i) + "1");
  }
}

TEST_CASE("a long prompt comes whole") {
  const std::string text(std::size_t{3} << 20, 'x');
  const json line{{"messages", {{{"role", "user"}, {"content", text}}}}};

  CHECK(rendered("{{ messages[0].content }}", line.dump()) == text);
}

TEST_CASE("tool_choice none shows no tools, and the template for tools is taken when there are some") {
  const json tools = json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  const std::string text = "{{ tools is none }}";
  JinjaRenderer renderer(files_of({{"chat_template.jinja", "plain {{ tools is none }}"},
                                   {"tool_use.jinja", "tools {{ tools | length }}"}}),
                         settings_of_tests());
  const auto made_of = [&](const json& fields) { return renderer.render(line_with(fields), origin_of_tests()); };

  CHECK(rendered(text, line_with({{"tools", tools}})) == "False");
  CHECK(rendered(text, line_with({{"tools", tools}, {"tool_choice", "auto"}})) == "False");
  CHECK(rendered(text, line_with({{"tools", tools}, {"tool_choice", "none"}})) == "True");
  CHECK(made_of({{"tools", tools}}) == "tools 1");
  CHECK(made_of({{"tools", nullptr}}) == "plain True");
  CHECK(made_of({{"tools", tools}, {"tool_choice", "none"}}) == "plain True");
}

TEST_CASE("parts of text are joined by newlines for a template that does not go through them") {
  const json parts = json::parse(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])");
  const std::string line = json{{"messages", {{{"role", "user"}, {"content", parts}}}}}.dump();

  CHECK(rendered("{{ messages[0].content }}", line) == "a\nb");
  CHECK(rendered("{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}", line) == "<a><b>");
  CHECK(rendered("{% set c = messages[0]['content'] %}{% for p in c %}<{{ p.text }}>{% endfor %}", line) == "<a><b>");
  CHECK(rendered("{% macro show(content) %}{% for p in content %}<{{ p.text }}>{% endfor %}{% endmacro %}"
                 "{{ show(messages[0].content) }}",
                 line) == "<a><b>");
}

TEST_CASE("reasoning_effort is a variable of the template, chat_template_kwargs come before it") {
  const std::string text = "{{ reasoning_effort }}";

  CHECK(rendered(text, line_with({{"reasoning_effort", "high"}})) == "high");
  CHECK(rendered(text, line_with({{"chat_template_kwargs", {{"reasoning_effort", "low"}}}})) == "low");
  CHECK(rendered(text, line_with({{"reasoning_effort", "high"},
                                  {"chat_template_kwargs", {{"reasoning_effort", "low"}}}})) == "low");
}

TEST_CASE("the text of a line is data, never a template") {
  const json line{{"messages", {{{"role", "user"}, {"content", "{{ 6 * 7 }}{% raw %}"}}}}};

  CHECK(rendered("{{ messages[0].content }}", line.dump()) == "{{ 6 * 7 }}{% raw %}");
}

TEST_CASE("what a template refuses or gets wrong costs the line and says so") {
  CHECK(refusal_of("{{ raise_exception('no ' ~ messages[0].role) }}") ==
        "messages: the chat template refuses it: no user");
  CHECK(refusal_of("{{ messages[1].content }}") ==
        "messages: the chat template cannot render it: UndefinedError: list object has no element 1");
  CHECK(refusal_of("{{ 'a' + 1 }}") ==
        "messages: the chat template cannot render it: TypeError: can only concatenate str (not \"int\") to str");
  CHECK(refusal_of("{{ strftime_now('%Y') }}") ==
        "messages: the chat template asks for the date, which must not depend on when a job runs: set requests.date");
  CHECK(refusal_of("{{ [1, 2] | random }}") ==
        "messages: the chat template chooses at random: the same line would get another prompt in every run");
  CHECK(refusal_of("{{ lipsum() }}").find("the chat template chooses at random") != std::string::npos);
  CHECK(refusal_of("{{ '\\ud800' }}").find("UnicodeEncodeError") != std::string::npos);
}

TEST_CASE("a message to continue must have a content that the template shows as it is") {
  const auto line_of = [](const json& message) {
    return json{{"messages", {message}}, {"continue_final_message", true}}.dump();
  };
  const json calls = json::parse(R"([{"function": {"name": "f"}}])");

  CHECK(refusal_of("x", line_of({{"role", "assistant"}, {"tool_calls", calls}})) ==
        "messages: continue_final_message: the last message has no content to continue");
  CHECK(refusal_of("{{ messages[0].role }}", line_of({{"role", "assistant"}, {"content", "abc"}})) ==
        "messages: continue_final_message: the chat template does not show the last message as it is");
}

TEST_CASE("a template reaches nothing outside of what it is given") {
  for (const char* refused :
       {"{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ messages[0].update(a=1) }}",
        "{{ namespace(__class__=1) }}", "{% set n = namespace() %}{% set n._x = 1 %}", "{{ dict.__subclasses__() }}",
        "{% for i in range(1000000) %}x{% endfor %}", "{% include '/etc/passwd' %}"}) {
    INFO(refused);
    CHECK(!refusal_of(refused).empty());
  }
  for (const char* undefined :
       {"{{ messages.__class__ }}", "{{ raise_exception.__globals__ }}",
        "{{ '{0.__class__.__init__}'.format(messages) }}", "{{ ('%s' | attr('format'))(1).__class__ }}"}) {
    INFO(undefined);
    CHECK(rendered(undefined).empty());
  }
}

TEST_CASE("memory and length of what a template makes are bounded") {
  // With a variable in it, or it would be computed when the template is compiled.
  CHECK(refusal_of("{{ 'x' * (5000000000 * messages | length) }}") ==
        "messages: the chat template needs more memory than it may have");
  CHECK(refusal_of("{{ 'x' * (300000000 * messages | length) }}") ==
        "messages: the chat template makes more than 268435456 bytes of it");
}

TEST_CASE("a model without a template refuses chat and nothing is started for it") {
  JinjaSettings settings = settings_of_tests();
  settings.command = {"no-such-program"};
  JinjaRenderer renderer(files_of({{"tokenizer_config.json", R"({"chat_template": null})"}}), settings);

  CHECK_THROWS_WITH(renderer.render(a_line(), origin_of_tests()),
                    "messages: the checkpoint has no chat template (chat_template.jinja, or chat_template in "
                    "tokenizer_config.json); give the text as \"prompt\"");
}

TEST_CASE("a list of templates needs one named default, but for lines with tools") {
  const std::string config =
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]})";
  JinjaRenderer renderer(files_of({{"tokenizer_config.json", config}}), settings_of_tests());

  CHECK(renderer.render(line_with({{"tools", json::array()}}), origin_of_tests()) == "T");
  CHECK_THROWS_WITH(renderer.render(a_line(), origin_of_tests()),
                    "messages: the checkpoint has no chat template named default, only rag, tool_use");
}
