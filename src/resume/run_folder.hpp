// The output folder as the place of a run that may be stopped or killed and go on. Beside the output it holds, until
// the run is finished, resume.state and resume.journal. Rank 0 only.
#pragma once

#include "requests/earlier_lines.hpp"
#include "requests/line_journal.hpp"
#include "resume/run_state.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metro {

class RunFolder {
 public:
  // Looks whether an unfinished run is to go on in `directory`, which is made if needed: one that has a state there,
  // unless `overwrite`. Then its output is put in order, else only looked at. `keys`: what must be as it was.
  // Throws Error(usage) naming the key and both values when it is not, when a new run would meet earlier output and
  // when another run works in the folder; Error(input) when the state is damaged.
  RunFolder(std::string directory, bool overwrite, std::vector<RunKey> keys);

  bool goes_on() const { return goes_on_; }
  // How often the run was started, this time included.
  std::int64_t part() const { return state_.part; }
  // `path` for a file of which every part of the run has its own: "metrics.h5", "metrics.2.h5".
  std::string of_part(const std::string& path) const;

  // Of a run that goes on: the lines that it has read before, finished or in work.
  const EarlierLines& earlier_lines() const { return earlier_lines_; }
  std::int64_t num_completions() const { return num_completions_; }
  std::int64_t num_errors() const { return num_errors_; }
  std::int64_t num_continued() const { return num_continued_; }  // lines in work that had tokens
  const std::vector<EarlierRequest>& requests() const { return state_.requests; }
  const std::string& note() const { return note_; }  // what had to be repaired, for the user; else empty

  // Makes the folder that of this run, before its output is opened: removes what is overwritten, writes the state.
  void begin();
  LineJournal& journal() { return *journal_; }

  // Replaces the state by one with these requests in work.
  void save(std::vector<EarlierRequest> requests);

  // Everything is finished and written: removes state and journal.
  void end();

 private:
  void require_same_keys(const RunState& earlier) const;
  void take_up();
  void remove_partial_states() const;
  void remove_earlier_output() const;
  std::string path(const std::string& name) const;

  std::string directory_;
  bool overwrite_;
  bool goes_on_ = false;
  RunState state_;
  std::optional<LineJournal> journal_;
  EarlierLines earlier_lines_;
  std::int64_t num_completions_ = 0, num_errors_ = 0, num_continued_ = 0;
  std::string note_;
};

}  // namespace metro
