// What a run that was stopped or killed needs to go on: which run it is, and the tokens of requests that are in work
// (docs/reliability.md). Finished requests are told by the journal of the output, requests/line_journal.hpp.
#pragma once

#include "requests/request.hpp"
#include "requests/sampled_token.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// Something that may not change between the parts of a run, as the user knows it and as text.
struct RunKey {
  std::string name;
  std::string value;

  bool operator==(const RunKey&) const = default;
};

// One completion of a line.
struct EarlierSample {
  std::vector<SampledToken> tokens;
  FinishReason reason = FinishReason::none;  // none: not finished

  bool operator==(const EarlierSample&) const = default;
};

// A line of the input that is in work.
struct EarlierRequest {
  InputLine line;
  std::vector<EarlierSample> samples;       // [n], by sample_index
  std::vector<SampledToken> prompt_scores;  // all that are wanted, or none

  bool operator==(const EarlierRequest&) const = default;
};

struct RunState {
  std::vector<RunKey> keys;
  std::int64_t part = 1;  // how often the run was started
  std::vector<EarlierRequest> requests;

  bool operator==(const RunState&) const = default;
};

// Replaces the file at `path` in one go. Throws as write_file_atomically.
void write_run_state(const std::string& path, const RunState& state);

// Throws Error(input) with path and reason when the file cannot be read, is damaged or of another version.
RunState read_run_state(const std::string& path);

}  // namespace metro
