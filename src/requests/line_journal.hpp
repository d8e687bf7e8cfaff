// Which line of the input each line of the output belongs to: what a run that goes on must not do again. An entry is
// written before its line, so that whatever a kill leaves behind, the entries tell which lines are whole.
#pragma once

#include "requests/request.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace metro {

enum class OutputFile : std::int64_t { completions = 0, errors = 1 };

struct JournalEntry {
  InputLine line;
  OutputFile file = OutputFile::completions;
  std::int64_t begin = 0;      // byte of the output file
  std::int64_t num_bytes = 0;  // with the "\n"
  Digest digest = 0;           // of these bytes

  bool operator==(const JournalEntry&) const = default;
};

class LineJournal {
 public:
  // Opens the file, or makes an empty one. It is locked as long as it is open; what another process of the same run
  // holds is waited for, patience_s seconds. Throws Error(usage) when that passes or the file cannot be opened.
  LineJournal(const std::string& path, double patience_s);
  ~LineJournal();
  LineJournal(const LineJournal&) = delete;
  LineJournal& operator=(const LineJournal&) = delete;

  // Shows the entries from the first on. Ends at one that is torn or damaged, and at one for which `keep` returns
  // false; that and all behind it are cut off. Returns how many are left. Throws Error(machine) when reading or cutting
  // fails.
  std::int64_t recover(const std::function<bool(const JournalEntry&)>& keep);

  // Throw Error(machine) when they fail (disk full).
  void append(const JournalEntry& entry);
  void flush();

 private:
  void lock(double patience_s) const;
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  int descriptor_;
};

}  // namespace metro
