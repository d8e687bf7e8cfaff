// Trace files (HDF5): reading them whole, writing them at once or rows at a time while a run records.
// Layout: docs/formats.md, "Trace".
#pragma once

#include "trace/routing_trace.hpp"

#include <memory>
#include <string>

namespace metro {

constexpr const char* trace_format_name = "metro-trace";
constexpr std::int64_t trace_format_version = 1;

// Throws Error(input) naming the file and what is wrong: not readable, truncated, another format or version, a dataset
// that is missing or has the wrong type or shape, or what check_trace() finds.
RoutingTrace read_trace(const std::string& path);

// Appends tokens to a new file. All methods throw Error(machine) naming the file when writing fails, the constructor
// Error(usage) when it cannot be created. What was flushed can be read even if the process ends without close().
class TraceWriter {
 public:
  // Creates `path`; a plain file that is there is replaced. with_weights: whether topk_weight is stored.
  TraceWriter(const std::string& path, const TraceModel& model, bool with_weights);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // The tokens of `tokens`, behind those that are there. Its model has the same layers and top_k as the file; it has
  // weights exactly if the file has.
  void append(const RoutingTrace& tokens);
  void flush();
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes a whole trace beside `path` and renames, so that `path` is never half written. Throws Error(usage) if the file
// is in the way and `overwrite` is not given, and what TraceWriter throws.
void write_trace(const RoutingTrace& trace, const std::string& path, bool overwrite);

}  // namespace metro
