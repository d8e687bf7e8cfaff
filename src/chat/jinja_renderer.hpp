// Renders chat lines by the chat template of the model, with Jinja2 as transformers does: in a Python process, which is
// started by the first line that needs it (tools/chat_renderer.py). Rank 0 only.
#pragma once

#include "chat/chat_templates.hpp"
#include "requests/chat_renderer.hpp"

#include <memory>
#include <string>
#include <vector>

namespace metro {

struct JinjaSettings {
  std::string checkpoint;            // for messages
  std::string date;                  // what the template takes for now, ISO 8601; empty: it may not ask
  double patience_s = 60.0;          // longest wait for a line
  std::vector<std::string> command;  // program and arguments; empty: chat_renderer_command()
};

// "python3" and the path of chat_renderer.py, which is installed with metro: from the folder of the running program,
// else from METRO_ROOT. Throws Error(usage) if it is in neither.
std::vector<std::string> chat_renderer_command();

class JinjaRenderer : public ChatRenderer {
 public:
  // `files` is asked when the first line comes.
  JinjaRenderer(ModelFiles files, JinjaSettings settings);
  ~JinjaRenderer() override;

  // Throws Error(usage) when Python or jinja2 is missing, Error(checkpoint) when a template is malformed or does not
  // come to an end, Error(machine) when the process ends.
  std::string render(const std::string& line, const RequestOrigin& origin) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
