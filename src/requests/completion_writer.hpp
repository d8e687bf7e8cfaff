// Writes completions.jsonl and errors.jsonl in the output directory (docs/requests.md). Rank 0 only.
// Lines hold nothing that depends on time, ranks or the schedule: only the order of lines does.
#pragma once

#include "requests/completed_line.hpp"
#include "requests/request_reader.hpp"
#include "tokenizer/tokenizer.hpp"

#include <memory>
#include <string>

namespace metro {

class CompletionWriter {
 public:
  // Creates `directory` if needed. Throws Error(usage) when completions.jsonl or errors.jsonl is already there and
  // `overwrite` is false, or when they cannot be created. tokenizer may be null: "text" is then the empty string.
  CompletionWriter(const std::string& directory, bool overwrite, const Tokenizer* tokenizer);
  ~CompletionWriter();

  // One line, written whole. Throws Error(machine) when a write fails (disk full).
  void write(const CompletedLine& line);
  void write(const Rejection& rejection);
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
