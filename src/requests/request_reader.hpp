// Reads the input: JSON lines in the form of OpenAI's batch files or the short form {"prompt": ...}. Rank 0 only.
// A bad line costs only itself: it becomes a Rejection. Fields and their treatment: docs/requests.md.
#pragma once

#include "requests/request.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace metro {

struct Rejection {
  std::int64_t line = 0;
  std::string custom_id;  // "line-N" when the line has none or cannot be parsed
  std::string field;      // the offending field, empty when the line as a whole is wrong
  std::string message;    // what was found and what is allowed
};

struct RequestDefaults {
  std::int64_t max_tokens = 0;   // for lines without max_tokens: clamped to what fits max_context
  std::int64_t max_context = 0;  // prompt + completion, in tokens
  std::int64_t vocab_size = 0;   // prompt ids must be below
  double temperature = 0.0;      // for lines without temperature
  std::string model;             // name reported for lines without "model"
};

// A line that asks for n completions: n requests that differ in id and sample_index, both ascending.
struct AcceptedLine {
  std::vector<Request> samples;  // [origin.num_samples]
  RequestOrigin origin;
};

class RequestReader {
 public:
  // tokenizer may be null: then prompts must be token ids. Throws Error(input) if the file cannot be opened.
  RequestReader(const std::string& path, const RequestDefaults& defaults, const Tokenizer* tokenizer);
  ~RequestReader();

  // The next line that is not blank; nothing at the end of the input. Throws Error(input) on a read error.
  std::variant<std::monostate, AcceptedLine, Rejection> next();

  std::int64_t num_lines() const;  // lines read so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
