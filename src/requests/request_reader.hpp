// Reads the input: JSON lines in the form of OpenAI's batch files or the short forms {"prompt": ...} and
// {"messages": ...}. Rank 0 only.
// A bad line costs only itself: it becomes a Rejection. Fields and their treatment: docs/requests.md.
#pragma once

#include "requests/byte_source.hpp"
#include "requests/chat_renderer.hpp"
#include "requests/earlier_lines.hpp"
#include "requests/request.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace metro {

struct Rejection {
  std::string file;       // as requests.input names it; "-": standard input
  std::int64_t line = 0;  // 1-based line of that file
  std::string custom_id;  // "line-N" when the line has none or cannot be parsed
  std::string field;      // the offending field, empty when the line as a whole is wrong
  std::string message;    // what was found and what is allowed
  InputLine input_line = {};
};

// Where requests come from, and when.
struct RequestInput {
  std::vector<std::string> files;  // at least one
  std::string arrivals;            // trace of arrival times, a row per line that is not blank; empty: none
  double arrival_scale = 1.0;      // on all arrival times
  // Of the lines, those with (number - 1) mod num_shards == shard_idx come; of the others only what these depend on is
  // taken: their numbers, their arrival times and rows of the trace, their custom_ids.
  std::int64_t shard_idx = 0, num_shards = 1;
};

// A custom_id that was there before.
struct RepeatedId {
  std::string custom_id;  // as JSON, shortened: fit for a message
  std::string file;
  std::int64_t line = 0;  // of the later of the two
};

// Lines that are not blank.
struct LineCount {
  std::int64_t all = 0;
  std::int64_t own = 0;  // of this shard

  bool operator==(const LineCount&) const = default;
};

// A line that asks for n completions: n requests that differ in id and sample_index, both ascending.
struct AcceptedLine {
  std::vector<Request> samples;  // [origin.num_samples]
  RequestOrigin origin;
};

// Nothing more to read for now: what comes from another process is not there yet.
struct NotYet {};

using ReadItem = std::variant<std::monostate, NotYet, AcceptedLine, Rejection>;

struct RequestDefaults {
  std::int64_t max_tokens = 0;   // for lines without max_tokens: clamped to what fits max_context
  std::int64_t max_context = 0;  // prompt + completion, in tokens
  std::int64_t vocab_size = 0;   // prompt ids must be below
  double temperature = 0.0;      // for lines without temperature
  std::string model;             // name reported for lines without "model"
};

class RequestReader {
 public:
  // tokenizer may be null: then prompts must be token ids. Throws Error(input) if a file cannot be opened.
  // renderer may be null: then chat lines are refused. Both must outlive the reader.
  RequestReader(const RequestInput& input, const RequestDefaults& defaults, const Tokenizer* tokenizer,
                ChatRenderer* renderer = nullptr);
  RequestReader(const std::string& path, const RequestDefaults& defaults, const Tokenizer* tokenizer);
  ~RequestReader();

  // The next own line that is not blank; monostate at the end of the input; NotYet after waiting patience_s seconds for
  // another process. Throws Error(input) on a read error and for a bad row of the trace.
  ReadItem next(double patience_s = for_ever_s);

  std::int64_t num_lines() const;  // of all files so far

  LineCount line_count() const;  // so far

  // For a run that goes on: reads the lines that it has read before. Those that are finished are dropped; next()
  // returns the others first. Throws Error(usage) naming file, line and both digests if a line is not what it was, if
  // lines are missing, and if another process sends none for patience_s.
  void pass_over(const EarlierLines& earlier, double patience_s);

  // Lines whose custom_id an earlier line has, and the first of them. Ids made from line numbers do not count.
  std::int64_t num_repeated_ids() const;
  const std::optional<RepeatedId>& first_repeated_id() const;

  // Lines without a row of the trace; they arrive with its last one.
  std::int64_t num_behind_trace() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
