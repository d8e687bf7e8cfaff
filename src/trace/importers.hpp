// Importers: published routing records in the forms in which they are packed for metro (docs/replay.md, "Importing").
#pragma once

#include "trace/count_table.hpp"
#include "trace/routing_trace.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

struct TraceKind {
  const char* name;  // on the command line
  const char* what;  // one line for --help
};

// All kinds that import_trace() knows.
std::span<const TraceKind> trace_kinds();

struct ImportedTrace {
  RoutingTrace trace;
  std::vector<std::string> notes;  // what was left out, one line each
};

// kind: a name of trace_kinds(). source: a folder or a file, depending on the kind. `draw` is for kinds that are count
// tables. Throws Error(usage) for an unknown kind, Error(input) naming the file, and the line where there are lines,
// for whatever is missing or does not fit.
ImportedTrace import_trace(std::string_view kind, const std::string& source, const DrawSettings& draw);

// The same for what placement needs only. Kinds that are count tables give their counts, others count their tokens.
// [layers, num_experts] in `counts`.
CountTable import_loads(std::string_view kind, const std::string& source);

// Loads as a file for `experts.loads` (docs/placement.md). Throws Error(usage) or Error(machine) if it cannot be
// written.
void write_loads(const CountTable& loads, const std::string& path, bool overwrite);

}  // namespace metro
