// One line: text -> JSON -> envelope (batch or short form) -> body fields -> lengths. Whatever is wrong with a line is
// thrown as LineError (or as Error by the JSON parser and the tokenizer) and becomes a Rejection in next().
#include "requests/request_reader.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
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
  const std::int64_t max_tokens = draft.max_tokens.value_or(std::min(defaults.max_tokens, room));
  const std::int32_t min_tokens = draft.request.sampling.min_tokens;
  if (min_tokens > max_tokens) {
    throw LineError("min_tokens",
                    fmt::format("min_tokens {}: at most {} is allowed (max_tokens)", min_tokens, max_tokens));
  }
  // The model is asked for a token all the same: that computes the prompt.
  draft.origin.drops_completion = max_tokens == 0;
  draft.request.max_tokens = static_cast<std::int32_t>(std::max<std::int64_t>(1, max_tokens));
}

// The same for the same custom_id and fields, in whatever order and form of line these are given.
std::uint64_t default_seed(const std::string& custom_id, const json& body) {
  json given = json::object();  // its keys are sorted
  for (const auto& [name, value] : body.items()) {
    if (!value.is_null() && name != "seed") {
      given[name] = value;
    }
  }
  const Digest digests[] = {digest_of(custom_id), digest_of(given.dump())};
  return digest_of_values(std::span<const Digest>(digests));
}

// Settles what chooses the tokens.
void settle_sampling(RequestDraft& draft, const RequestDefaults& defaults, const json& body) {
  SamplingOptions& sampling = draft.request.sampling;
  sampling.temperature = draft.temperature.value_or(defaults.temperature);
  if (sampling.temperature == 0.0) {
    if (draft.origin.num_samples > 1) {
      throw LineError("n", fmt::format("n {}: only 1 is allowed at temperature 0, where all completions are the same",
                                       draft.origin.num_samples));
    }
    return;  // no random numbers
  }
  sampling.seed = draft.seed ? static_cast<std::uint64_t>(*draft.seed) : default_seed(draft.origin.custom_id, body);
}

}  // namespace

struct RequestReader::Impl {
  LineReader lines;
  RequestDefaults defaults;
  const Tokenizer* tokenizer;
  std::int64_t num_accepted = 0;
  std::string text;  // of the line in work

  Impl(const std::string& path, const RequestDefaults& given, const Tokenizer* given_tokenizer)
      : lines(path, max_line_bytes), defaults(given), tokenizer(given_tokenizer) {}
  AcceptedLine accept(RequestDraft& draft);
};

AcceptedLine RequestReader::Impl::accept(RequestDraft& draft) {
  json line = parse_line(text);
  read_custom_id(line, draft.origin);
  const json body = take_body(std::move(line));
  read_request_fields(body, draft);
  fit_into_context(draft, defaults);
  settle_sampling(draft, defaults, body);

  AcceptedLine accepted;
  accepted.origin = std::move(draft.origin);
  for (std::int32_t sample_idx = 0; sample_idx < accepted.origin.num_samples; ++sample_idx) {
    draft.request.id = num_accepted;
    draft.request.sampling.sample_index = sample_idx;
    accepted.samples.push_back(draft.request);
    draft.request.scores_prompt = false;  // once is enough
    ++num_accepted;
  }
  return accepted;
}

RequestReader::RequestReader(const std::string& path, const RequestDefaults& defaults, const Tokenizer* tokenizer) {
  METRO_REQUIRE(defaults.max_tokens >= 1, fmt::format("max_tokens {}", defaults.max_tokens));
  METRO_REQUIRE(defaults.max_context >= 2 && defaults.max_context <= std::numeric_limits<std::int32_t>::max(),
                fmt::format("max_context {}", defaults.max_context));
  METRO_REQUIRE(defaults.vocab_size >= 1, fmt::format("vocab_size {}", defaults.vocab_size));
  METRO_REQUIRE(defaults.temperature >= 0.0, fmt::format("temperature {}", defaults.temperature));
  impl_ = std::make_unique<Impl>(path, defaults, tokenizer);
}

RequestReader::~RequestReader() = default;

std::int64_t RequestReader::num_lines() const {
  return impl_->lines.num_lines();
}

std::variant<std::monostate, AcceptedLine, Rejection> RequestReader::next() {
  LineReader::Outcome outcome = LineReader::Outcome::line;
  do {
    outcome = impl_->lines.next(impl_->text);
    if (outcome == LineReader::Outcome::end) {
      return std::monostate();
    }
  } while (outcome == LineReader::Outcome::line && is_blank(impl_->text));

  RequestDraft draft;
  draft.tokenizer = impl_->tokenizer;
  draft.vocab_size = impl_->defaults.vocab_size;
  draft.origin.line = num_lines();
  draft.origin.custom_id = fmt::format("line-{}", num_lines());
  draft.origin.model = impl_->defaults.model;
  const auto reject = [&](const std::string& field, const std::string& message) {
    return Rejection{draft.origin.line, draft.origin.custom_id, field, excerpt(message, max_message_bytes)};
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
