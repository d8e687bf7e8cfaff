// A line of the input that an earlier part of the run has begun: joins what the reader gives with the tokens so far.
#pragma once

#include "requests/completed_line.hpp"
#include "requests/request_reader.hpp"
#include "resume/run_state.hpp"

#include <cstdint>
#include <vector>

namespace metro {

struct ContinuedLine {
  std::vector<Request> requests;  // those that are not finished, with their tokens
  CompletedLine line;             // without the samples of these
};

// `earlier` without samples: the line was not begun. Throws Error(input) if its tokens cannot be of that line: they
// come from a file, and what they index has bounds.
ContinuedLine continue_line(AcceptedLine accepted, EarlierRequest earlier, std::int64_t vocab_size);

}  // namespace metro
