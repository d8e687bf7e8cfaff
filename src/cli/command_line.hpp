// The command line: which subcommand with which options. Nothing is run here.
#pragma once

#include "cli/bench_command.hpp"
#include "cli/convert_command.hpp"
#include "cli/import_trace_command.hpp"
#include "cli/inspect_command.hpp"
#include "cli/plan_command.hpp"
#include "cli/replay_command.hpp"
#include "cli/run_command.hpp"

#include <string>
#include <variant>

namespace metro {

// What --help, --version and `metro parameters` ask for: text for standard output.
struct TextToPrint {
  std::string text;
};

using ParsedCommand =
    std::variant<RunOptions, ConvertOptions, InspectOptions, PlanOptions, ReplayOptions, ImportTraceOptions,
                 BenchDecodeOptions, ExchangeBenchOptions, BenchRouteOptions, KernelBenchOptions, LoadBenchOptions,
                 ReplicatedBenchOptions, ScalingBenchOptions, GpuBenchOptions, ConvertBenchOptions, TextToPrint>;

// Throws Error(usage), one line that names the argument and ends in a hint to `metro --help`. argv is left as it is.
ParsedCommand parse_command_line(int argc, const char* const* argv);

}  // namespace metro
