// `metro import-trace`: a published routing record in, a trace file (or a loads file) out.
#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>

namespace metro {

struct ImportTraceOptions {
  std::string kind;
  std::string source;
  std::string output;  // a name that ends in .json asks for loads, any other for a trace
  // For kinds that are count tables: how tokens are drawn.
  std::int64_t num_tokens = 16384;
  std::int64_t tokens_per_request = 128;
  std::uint64_t seed = 0;
  bool overwrite = false;
};

// Imports and prints what was written. Throws what import_trace(), write_trace() and write_loads() throw.
ExitCode import_trace_command(const ImportTraceOptions& options);

}  // namespace metro
