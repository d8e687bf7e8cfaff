// One line: text -> JSON -> envelope (batch or short form) -> body fields -> lengths. Whatever is wrong with a line is
// thrown as LineError (or as Error by the JSON parser and the tokenizer) and becomes a Rejection in next().
#include "requests/request_reader.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "requests/arrival_trace.hpp"
#include "requests/digest_set.hpp"
#include "requests/line_reader.hpp"
#include "requests/request_fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace metro {

using nlohmann::json;

namespace {

constexpr std::int64_t max_line_bytes = std::int64_t{64} << 20;
constexpr std::size_t max_message_bytes = 300;
constexpr double most_arrival_s = 1e9;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// The library's text about broken JSON, without what only repeats the input (it may be long or no UTF-8) and without
// the line number, which counts within this one line.
std::string parse_reason(std::string reason) {
  reason.resize(std::min(reason.size(), reason.find("; last read")));
  const std::string_view position = "line 1, column";
  if (const auto at = reason.find(position); at != std::string::npos) {
    reason.replace(at, position.size(), "column");
  }
  return reason;
}

json parse_line(std::string_view text) {
  // The parser would take a NUL byte for the end of the text.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    throw LineError("", fmt::format("the line has a NUL byte at column {}", nul + 1));
  }
  json line;
  try {
    line = parse_json(text, "invalid JSON", ExitCode::input);
  } catch (const Error& error) {
    throw LineError("", parse_reason(error.what()));
  }
  if (!line.is_object()) {
    throw LineError("", fmt::format("a line must be a JSON object, this is: {}", excerpt(line)));
  }
  return line;
}

void read_custom_id(const json& line, RequestOrigin& origin) {
  const auto found = line.find("custom_id");
  if (found == line.end() || found->is_null()) {
    return;
  }
  if (!found->is_string()) {
    throw LineError("custom_id", fmt::format("custom_id {}: a string is expected", excerpt(*found)));
  }
  origin.custom_id = found->get<std::string>();
}

// When the line says that its request arrives; null counts as absent.
std::optional<double> read_arrival(const json& line) {
  const auto found = line.find("arrival_s");
  if (found == line.end() || found->is_null()) {
    return std::nullopt;
  }
  if (!found->is_number() || found->get<double>() < 0.0 || found->get<double>() > most_arrival_s) {
    throw LineError("arrival_s", fmt::format("arrival_s {}: a number of seconds from 0 to {:g} is expected",
                                             excerpt(*found), most_arrival_s));
  }
  return found->get<double>();
}

void require_envelope(const json& line, const char* key, const char* allowed) {
  const auto found = line.find(key);
  if (found == line.end()) {
    throw LineError(key, fmt::format("{}: missing; a batch line has custom_id, method, url and body", key));
  }
  if (*found != allowed) {
    throw LineError(key, fmt::format("{} {}: only \"{}\" is supported", key, excerpt(*found), allowed));
  }
}

// The body of a line of either form: a batch line is one with any of method, url, body.
json take_body(json line) {
  line.erase("custom_id");
  line.erase("arrival_s");
  if (!line.contains("method") && !line.contains("url") && !line.contains("body")) {
    return line;
  }
  require_envelope(line, "method", "POST");
  require_envelope(line, "url", "/v1/completions");
  if (!line.contains("body") || !line["body"].is_object()) {
    throw LineError("body", line.contains("body") ? fmt::format("body {}: an object is expected", excerpt(line["body"]))
                                                  : "body: missing; a batch line has custom_id, method, url and body");
  }
  for (const auto& [key, value] : line.items()) {
    if (key != "method" && key != "url" && key != "body") {
      throw LineError(excerpt(key, 40), fmt::format("unknown field \"{}\" beside body; a batch line has custom_id, "
                                                    "method, url and body",
                                                    excerpt(key, 40)));
    }
  }
  return std::move(line["body"]);
}

// Checks the prompt's length and settles max_tokens.
void fit_into_context(RequestDraft& draft, const RequestDefaults& defaults) {
  const auto prompt_length = static_cast<std::int64_t>(draft.request.prompt.size());
  const std::int64_t room = defaults.max_context - prompt_length;
  if (room < 1) {
    throw LineError("prompt", fmt::format("prompt: {} tokens, at most {} are allowed (model.max_context {}, of which "
                                          "the completion needs one)",
                                          prompt_length, defaults.max_context - 1, defaults.max_context));
  }
  if (draft.max_tokens.value_or(1) > room) {
    throw LineError("max_tokens", fmt::format("max_tokens {}: at most {} is allowed after a prompt of {} tokens "
                                              "(model.max_context {})",
                                              *draft.max_tokens, room, prompt_length, defaults.max_context));
  }
  draft.request.max_tokens = static_cast<std::int32_t>(draft.max_tokens.value_or(std::min(defaults.max_tokens, room)));
}

}  // namespace

struct RequestReader::Impl {
  LineReader lines;
  RequestDefaults defaults;
  const Tokenizer* tokenizer;
  std::optional<ArrivalTrace> trace;
  double arrival_scale;
  std::int64_t num_accepted = 0;
  std::string text;                      // of the line in work
  std::optional<double> last_arrival_s;  // of the line in work or the one before; nothing: no line has said one
  std::int64_t num_behind_trace = 0;
  DigestSet ids;
  std::int64_t num_repeated_ids = 0;
  std::optional<RepeatedId> first_repeated_id;

  Impl(const RequestInput& input, const RequestDefaults& given, const Tokenizer* given_tokenizer)
      : lines(input.files, max_line_bytes),
        defaults(given),
        tokenizer(given_tokenizer),
        arrival_scale(input.arrival_scale) {
    if (!input.arrivals.empty()) {
      trace.emplace(input.arrivals);
    }
  }
  void follow_trace();
  void settle_arrival(const json& line);
  void note_id(const json& line, const RequestOrigin& origin);
  AcceptedRequest accept(RequestDraft& draft);
};

// Every line that is not blank takes a row of the trace, also one that is refused.
void RequestReader::Impl::follow_trace() {
  if (!trace) {
    return;
  }
  if (const std::optional<double> row_s = trace->next_s()) {
    last_arrival_s = arrival_scale * *row_s;
  } else {
    ++num_behind_trace;
  }
}

// A line that does not say when it arrives does so with the one before.
void RequestReader::Impl::settle_arrival(const json& line) {
  const std::optional<double> own_s = read_arrival(line);
  if (!own_s) {
    return;
  }
  if (trace) {
    throw LineError("arrival_s", fmt::format("arrival_s {}: requests.arrivals = {} says when requests arrive",
                                             excerpt(line["arrival_s"]), trace->path()));
  }
  const double scaled_s = arrival_scale * *own_s;
  if (scaled_s < last_arrival_s.value_or(0.0)) {
    throw LineError("arrival_s", fmt::format("arrival_s {}: a line before arrives later, at {:g}; lines must be in the "
                                             "order of their arrival",
                                             excerpt(line["arrival_s"]), *last_arrival_s / arrival_scale));
  }
  last_arrival_s = scaled_s;
}

void RequestReader::Impl::note_id(const json& line, const RequestOrigin& origin) {
  const auto found = line.find("custom_id");
  if (found == line.end() || found->is_null() || ids.insert(digest_of(std::string_view(origin.custom_id)))) {
    return;
  }
  ++num_repeated_ids;
  if (!first_repeated_id) {
    first_repeated_id = RepeatedId{excerpt(*found), origin.file, origin.line};
  }
}

AcceptedRequest RequestReader::Impl::accept(RequestDraft& draft) {
  json line = parse_line(text);
  read_custom_id(line, draft.origin);
  note_id(line, draft.origin);
  settle_arrival(line);
  read_request_fields(take_body(std::move(line)), draft);
  fit_into_context(draft, defaults);
  draft.origin.arrival_s = last_arrival_s;
  draft.request.id = num_accepted;
  ++num_accepted;
  return {std::move(draft.request), std::move(draft.origin)};
}

RequestReader::RequestReader(const RequestInput& input, const RequestDefaults& defaults, const Tokenizer* tokenizer) {
  METRO_REQUIRE(input.arrival_scale > 0.0, fmt::format("arrival_scale {}", input.arrival_scale));
  METRO_REQUIRE(defaults.max_tokens >= 1, fmt::format("max_tokens {}", defaults.max_tokens));
  METRO_REQUIRE(defaults.max_context >= 2 && defaults.max_context <= std::numeric_limits<std::int32_t>::max(),
                fmt::format("max_context {}", defaults.max_context));
  METRO_REQUIRE(defaults.vocab_size >= 1, fmt::format("vocab_size {}", defaults.vocab_size));
  impl_ = std::make_unique<Impl>(input, defaults, tokenizer);
}

RequestReader::RequestReader(const std::string& path, const RequestDefaults& defaults, const Tokenizer* tokenizer)
    : RequestReader(RequestInput{{path}, "", 1.0}, defaults, tokenizer) {}

RequestReader::~RequestReader() = default;

std::int64_t RequestReader::num_lines() const {
  return impl_->lines.num_lines();
}

std::int64_t RequestReader::num_repeated_ids() const {
  return impl_->num_repeated_ids;
}

const std::optional<RepeatedId>& RequestReader::first_repeated_id() const {
  return impl_->first_repeated_id;
}

std::int64_t RequestReader::num_behind_trace() const {
  return impl_->num_behind_trace;
}

ReadItem RequestReader::next(double patience_s) {
  LineReader::Outcome outcome = LineReader::Outcome::line;
  do {
    outcome = impl_->lines.next(impl_->text, patience_s);
    if (outcome == LineReader::Outcome::end) {
      return std::monostate();
    }
    if (outcome == LineReader::Outcome::waiting) {
      return NotYet();
    }
  } while (outcome == LineReader::Outcome::line && is_blank(impl_->text));
  impl_->follow_trace();

  RequestDraft draft;
  draft.tokenizer = impl_->tokenizer;
  draft.vocab_size = impl_->defaults.vocab_size;
  draft.origin.file = impl_->lines.path();
  draft.origin.line = impl_->lines.line_in_file();
  draft.origin.custom_id = fmt::format("line-{}", num_lines());
  draft.origin.model = impl_->defaults.model;
  const auto reject = [&](const std::string& field, const std::string& message) {
    const RequestOrigin& origin = draft.origin;
    return Rejection{origin.file, origin.line, origin.custom_id, field, excerpt(message, max_message_bytes)};
  };
  if (outcome == LineReader::Outcome::too_long) {
    return reject("", fmt::format("the line is longer than {} bytes", max_line_bytes));
  }
  try {
    return impl_->accept(draft);
  } catch (const LineError& error) {
    return reject(error.field, error.what());
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::input) {
      throw;
    }
    return reject("prompt", fmt::format("prompt: {}", error.what()));
  }
}

}  // namespace metro
