// The output of an earlier part of a run, put in order: whole lines only, each with its line of the input. Rank 0 only.
#pragma once

#include "requests/earlier_lines.hpp"
#include "requests/line_journal.hpp"

#include <cstdint>
#include <string>

namespace metro {

struct RecoveredOutput {
  EarlierLines finished;
  std::int64_t num_completions = 0;
  std::int64_t num_errors = 0;
  bool was_cut = false;  // there was more, torn or not as the journal says
};

// Compares completions.jsonl and errors.jsonl in `directory` with the journal, from their beginnings, and cuts all
// three behind the last line for which that holds. A missing file counts as empty. Throws Error(machine) when that
// fails.
RecoveredOutput recover_output(const std::string& directory, LineJournal& journal);

}  // namespace metro
