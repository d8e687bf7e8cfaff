#include "chat/jinja_renderer.hpp"

#include "base/error.hpp"
#include "chat/helper_process.hpp"
#include "requests/field_values.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

namespace metro {

using nlohmann::json;

namespace {

using Kind = HelperFailure::Kind;

constexpr std::int64_t memory_bytes = std::int64_t{2} << 30;
constexpr std::int64_t text_bytes = std::int64_t{256} << 20;
constexpr const char* script = "tools/chat_renderer.py";
constexpr const char* packages = "on Debian: apt-get install python3 python3-jinja2";

}  // namespace

std::vector<std::string> chat_renderer_command() {
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure);
  std::vector<std::filesystem::path> folders;
  if (!failure) {
    folders.push_back(program.parent_path() / METRO_PROGRAMS_TO_SHARE);
  }
  if (const char* root = std::getenv("METRO_ROOT")) {
    folders.emplace_back(root);
  }
  std::string looked_at;
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path path = (folder / script).lexically_normal();
    if (std::filesystem::is_regular_file(path, failure)) {
      return {"python3", path.string()};
    }
    looked_at += fmt::format("{}{}", looked_at.empty() ? "" : ", ", path.string());
  }
  throw Error(ExitCode::usage, fmt::format("chat lines need a file that is installed with metro, and there is none: {} "
                                           "(METRO_ROOT may name the folder that has {})",
                                           looked_at, script));
}

struct JinjaRenderer::Impl {
  ModelFiles files;
  JinjaSettings settings;
  std::optional<ChatTemplates> templates;  // once they are looked for
  std::optional<HelperProcess> helper;

  ChatTemplates find_templates() const;
  void start();
  std::string ask(std::string_view message, const std::string& about);
  std::string setup() const;
};

std::string JinjaRenderer::Impl::setup() const {
  // The helper's own end, should nobody be there to end it.
  const auto time_limit_s = static_cast<std::int64_t>(std::ceil(settings.patience_s)) + 5;
  const json message{
      {"templates", templates->templates}, {"variables", templates->variables}, {"now", settings.date},
      {"time_limit_s", time_limit_s},      {"memory_bytes", memory_bytes},      {"text_bytes", text_bytes}};
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string JinjaRenderer::Impl::ask(std::string_view message, const std::string& about) {
  const auto fail = [&](ExitCode exit_code, const HelperFailure& failure) {
    throw Error(exit_code, fmt::format("{}: the process that renders chat lines ({}) {}", about,
                                       fmt::join(settings.command, " "), failure.what()));
  };
  try {
    if (!helper) {
      helper.emplace(settings.command, text_bytes + 1);
    }
    return helper->ask(message, settings.patience_s);
  } catch (const HelperFailure& failure) {
    helper.reset();
    switch (failure.kind) {
      case Kind::not_found:
        throw Error(ExitCode::usage, fmt::format("{}: chat lines need python3 and its package jinja2; {} ({})", about,
                                                 failure.what(), packages));
      case Kind::too_slow:
        throw Error(ExitCode::checkpoint,
                    fmt::format("{}: the chat template of {} does not come to an end within {:g} s", about,
                                settings.checkpoint, settings.patience_s));
      case Kind::not_started:
      case Kind::ended:
      case Kind::not_an_answer:
        fail(ExitCode::machine, failure);
    }
    throw;
  }
}

ChatTemplates JinjaRenderer::Impl::find_templates() const {
  try {
    return find_chat_templates(files);
  } catch (const Error& error) {
    throw Error(error.exit_code(), fmt::format("{}: {}", settings.checkpoint, error.what()));
  }
}

void JinjaRenderer::Impl::start() {
  if (settings.command.empty()) {
    settings.command = chat_renderer_command();
  }
  const std::string about = "requests.input";
  const std::string answer = ask(setup(), about);
  const std::string why = answer.empty() ? std::string() : one_line(answer.substr(1));
  switch (answer.empty() ? '\0' : answer.front()) {
    case 'R':
      return;
    case 'M':
      throw Error(ExitCode::usage, fmt::format("{}: chat lines need the package jinja2 of the python3 in PATH: {} ({}; "
                                               "elsewhere: pip install jinja2)",
                                               about, why, packages));
    case 'T':
      throw Error(ExitCode::checkpoint,
                  fmt::format("{}: its chat template cannot be used: {}", settings.checkpoint, why));
    default:
      throw Error(ExitCode::machine, fmt::format("{}: the process that renders chat lines ({}) gives no answer to its "
                                                 "first message",
                                                 about, fmt::join(settings.command, " ")));
  }
}

JinjaRenderer::JinjaRenderer(ModelFiles files, JinjaSettings settings) : impl_(std::make_unique<Impl>()) {
  METRO_REQUIRE(settings.patience_s > 0.0, fmt::format("{}", settings.patience_s));
  impl_->files = std::move(files);
  impl_->settings = std::move(settings);
}

JinjaRenderer::~JinjaRenderer() = default;

std::string JinjaRenderer::render(const std::string& line, const RequestOrigin& origin) {
  if (!impl_->templates) {
    impl_->templates = impl_->find_templates();
  }
  if (impl_->templates->templates.empty()) {
    throw LineError("messages",
                    "messages: the checkpoint has no chat template (chat_template.jinja, or chat_template in "
                    "tokenizer_config.json); give the text as \"prompt\"");
  }
  if (!impl_->helper) {
    impl_->start();
  }
  const std::string about = fmt::format("line {} of {}", origin.line, origin.file);
  std::string answer = impl_->ask(line, about);
  const char kind = answer.empty() ? '\0' : answer.front();
  if (kind != 'P' && kind != 'E') {
    throw Error(ExitCode::machine,
                fmt::format("{}: the process that renders chat lines ({}) gives an answer of no known "
                            "kind",
                            about, fmt::join(impl_->settings.command, " ")));
  }
  answer.erase(0, 1);
  if (kind == 'E') {
    throw LineError("messages", fmt::format("messages: {}", one_line(answer)));
  }
  return answer;
}

}  // namespace metro
