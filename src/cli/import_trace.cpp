#include "cli/import_trace_command.hpp"

#include "cli/standard_output.hpp"
#include "trace/importers.hpp"
#include "trace/requests_of_trace.hpp"
#include "trace/trace_file.hpp"

#include <fmt/format.h>

namespace metro {

ExitCode import_trace_command(const ImportTraceOptions& options) {
  std::string text;
  if (options.output.ends_with(".json")) {
    const CountTable loads = import_loads(options.kind, options.source);
    write_loads(loads, options.output, options.overwrite);
    text = fmt::format("wrote {}: loads of {} layers of {} experts\n", options.output, loads.model.num_layers(),
                       loads.model.num_experts);
  } else {
    const DrawSettings draw{options.num_tokens, options.tokens_per_request, options.seed};
    const ImportedTrace imported = import_trace(options.kind, options.source, draw);
    const RoutingTrace& trace = imported.trace;
    write_trace(trace, options.output, options.overwrite);
    text = fmt::format("wrote {}: {} tokens of {} requests, {} layers, {} experts, top {}\n", options.output,
                       trace.num_tokens(), requests_of(trace, TraceRows::all, TraceRequests::all).size(),
                       trace.model.num_layers(), trace.model.num_experts, trace.model.top_k);
    for (const std::string& note : imported.notes) {
      text += fmt::format("note: {}\n", one_line(note));
    }
  }
  print_to_stdout(text);
  return ExitCode::done;
}

}  // namespace metro
