// The subcommands of the command line, each with the options that it fills. For command_line.cpp and
// bench_command_line.cpp only: it brings the whole library for command lines.
#pragma once

#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace metro {

class CommandTable {
 public:
  // add_to(parent, options) adds a subcommand to `parent` that fills `options`, and returns it. Its help says in words
  // what the values of options are, not by their types.
  template <class Options>
  void add(CLI::App& parent, CLI::App* (*add_to)(CLI::App&, Options&)) {
    const auto options = std::make_shared<Options>();
    CLI::App* command = add_to(parent, *options);
    for (CLI::Option* option : command->get_options([](CLI::Option*) { return true; })) {
      option->type_name("");
    }
    commands_.push_back({command, [options]() -> ParsedCommand { return *options; }});
  }

  // The options of the subcommand that was given; none if it is not one of these.
  std::optional<ParsedCommand> parsed() const {
    for (const Command& command : commands_) {
      if (command.app->parsed()) {
        return command.options();
      }
    }
    return std::nullopt;
  }

 private:
  struct Command {
    const CLI::App* app;
    std::function<ParsedCommand()> options;
  };
  std::vector<Command> commands_;
};

// Adds `bench`, of which every benchmark is a subcommand.
void add_bench_commands(CLI::App& app, CommandTable& commands);

}  // namespace metro
