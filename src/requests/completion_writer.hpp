// Writes completions.jsonl and errors.jsonl in the output directory (docs/requests.md). Rank 0 only.
// Lines hold nothing that depends on time, ranks or the schedule: only the order of lines does.
#pragma once

#include "requests/completed_line.hpp"
#include "requests/line_journal.hpp"
#include "requests/request_reader.hpp"
#include "tokenizer/tokenizer.hpp"

#include <memory>
#include <string>

namespace metro {

// Makes `directory` if needed and throws Error(usage) for whatever would stop a CompletionWriter; creates and changes
// no file. For the start of a run, before hours of work or the output of an earlier run are at stake.
void check_output(const std::string& directory, bool overwrite);

class CompletionWriter {
 public:
  // Creates `directory` if needed. Throws Error(usage) when completions.jsonl or errors.jsonl is already there or
  // cannot be created. tokenizer may be null: "text" is then the empty string.
  CompletionWriter(const std::string& directory, const Tokenizer* tokenizer);
  // Of a run that may be stopped and go on: writes behind what is there, and each line into `journal` first, which must
  // outlive it.
  CompletionWriter(const std::string& directory, const Tokenizer* tokenizer, LineJournal& journal);
  ~CompletionWriter();

  // One line, written whole. Throws Error(machine) when a write fails (disk full).
  void write(const CompletedLine& line);
  void write(const Rejection& rejection);

  // Asks for all lines to be on the disk; waits for that.
  void flush();
  // The same, but at most once in some seconds, and only if there are lines since: how much a crash of the machine may
  // lose. now_s never falls. Returns whether it did.
  bool flush_if_due(double now_s);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
