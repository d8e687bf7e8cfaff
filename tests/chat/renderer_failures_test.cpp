// What ends a run: no Python, no jinja2, a template that is malformed or endless, a process that dies or talks
// nonsense.
#include "chat/renderer_of.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

using metro::ExitCode;
using metro::JinjaRenderer;
using metro::JinjaSettings;
using metro::test::a_line;
using metro::test::expect_error;
using metro::test::files_of;
using metro::test::origin_of_tests;
using metro::test::ScratchFolder;
using metro::test::settings_of_tests;

namespace {

void render_by(const JinjaSettings& settings, const std::string& chat_template = "x") {
  JinjaRenderer renderer(files_of({{"chat_template.jinja", chat_template}}), settings);
  renderer.render(a_line(), origin_of_tests());
}

// Settings with a Python program in place of the renderer.
JinjaSettings settings_with(const std::string& program) {
  JinjaSettings settings = settings_of_tests();
  settings.command = {"python3", "-c", program};
  return settings;
}

}  // namespace

TEST_CASE("without python3 an error says which packages are needed") {
  JinjaSettings settings = settings_of_tests();
  settings.command.front() = "no-such-python3";

  expect_error(ExitCode::usage,
               {"requests.input: chat lines need python3 and its package jinja2; no-such-python3: No such file or "
                "directory (on Debian: apt-get install python3 python3-jinja2)"},
               [&] { render_by(settings); });
}

TEST_CASE("without jinja2 an error says which package is needed") {
  const ScratchFolder folder;
  std::ofstream(folder.file("jinja2.py")) << "raise ImportError('there is none')\n";
  JinjaSettings settings = settings_of_tests();
  settings.command = {"env", "PYTHONPATH=" + folder.path().string(), "python3", metro::test::renderer_script};

  expect_error(ExitCode::usage,
               {"requests.input: chat lines need the package jinja2 of the python3 in PATH: there is none (on Debian: "
                "apt-get install python3 python3-jinja2; elsewhere: pip install jinja2)"},
               [&] { render_by(settings); });
}

TEST_CASE("a template that is malformed is an error of the checkpoint, with the line") {
  expect_error(ExitCode::checkpoint,
               {"model.h5: its chat template cannot be used: line 2: Encountered unknown tag 'wild'"},
               [] { render_by(settings_of_tests(), "a\n{% wild %}"); });
  expect_error(ExitCode::checkpoint, {"model.h5: tokenizer_config.json: chat_template: a text or a list"}, [] {
    JinjaRenderer renderer(files_of({{"tokenizer_config.json", R"({"chat_template": 5})"}}), settings_of_tests());
    renderer.render(a_line(), origin_of_tests());
  });
}

TEST_CASE("a template without end is stopped, whether Python or one of its calls does not return") {
  JinjaSettings settings = settings_of_tests();
  settings.patience_s = 1.0;

  for (const char* endless : {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                              "{{ 7 ** (7 ** (12 * messages | length)) }}"}) {
    expect_error(ExitCode::checkpoint,
                 {"line 7 of in.jsonl: the chat template of model.h5 does not come to an end within 1 s"},
                 [&] { render_by(settings, endless); });
  }
  expect_error(ExitCode::checkpoint,
               {"requests.input: the chat template of model.h5 does not come to an end within 1 s"},
               [&] { render_by(settings, "{{ 7 ** (7 ** 12) }}"); });  // constant: when it is compiled
}

TEST_CASE("a process that ends says how, with its last words") {
  expect_error(ExitCode::machine,
               {"requests.input: the process that renders chat lines (python3 -c ", "killed by signal 9"},
               [] { render_by(settings_with("import os; os.kill(os.getpid(), 9)")); });
  expect_error(ExitCode::machine, {"ended with exit code 3: out of luck"},
               [] { render_by(settings_with("import sys; print('out of luck'); sys.exit(3)")); });
}

TEST_CASE("a process that says something else is not believed") {
  const std::string begin = "import os, time; os.read(0, 8); ";

  expect_error(ExitCode::machine, {"answers with ", "at most 268435457 are expected"},
               [&] { render_by(settings_with(begin + "os.write(0, b'hello, world'); time.sleep(60)")); });
  expect_error(ExitCode::machine, {"gives no answer to its first message"},
               [&] { render_by(settings_with(begin + "os.write(0, bytes(8)); time.sleep(60)")); });
  expect_error(ExitCode::machine, {"line 7 of in.jsonl: ", "gives an answer of no known kind"}, [&] {
    const std::string ok = "os.write(0, b'\\1' + bytes(7) + b'R'); os.write(0, b'\\1' + bytes(7) + b'?'); ";
    render_by(settings_with(begin + ok + "time.sleep(60)"));
  });
}

TEST_CASE("the program that renders is found beside metro or by METRO_ROOT, else an error names the places") {
  const ScratchFolder folder;
  ::unsetenv("METRO_ROOT");

  expect_error(ExitCode::usage, {"chat lines need a file that is installed with metro", "tools/chat_renderer.py"},
               [] { metro::chat_renderer_command(); });
  ::setenv("METRO_ROOT", METRO_SOURCE_DIR, 1);
  CHECK(metro::chat_renderer_command() == std::vector<std::string>{"python3", metro::test::renderer_script});
  ::unsetenv("METRO_ROOT");
}
