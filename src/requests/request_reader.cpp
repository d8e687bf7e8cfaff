// One line: text -> JSON -> envelope (batch or short form) -> body fields -> lengths. Whatever is wrong with a line is
// thrown as LineError (or as Error by the JSON parser and the tokenizer) and becomes a Rejection in next().
#include "requests/request_reader.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "requests/arrival_trace.hpp"
#include "requests/digest_set.hpp"
#include "requests/line_reader.hpp"
#include "requests/request_fields.hpp"
#include "requests/request_line.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

namespace metro {

using nlohmann::json;

namespace {

constexpr std::int64_t max_line_bytes = std::int64_t{64} << 20;
constexpr std::size_t max_message_bytes = 300;

// Checks the prompt's length and settles max_tokens.
void fit_into_context(RequestDraft& draft, const RequestDefaults& defaults) {
  const auto prompt_length = static_cast<std::int64_t>(draft.request.prompt.size());
  const std::int64_t room = defaults.max_context - prompt_length;
  if (room < 1) {
    throw LineError(draft.prompt_field(),
                    fmt::format("{}: {} tokens, at most {} are allowed (model.max_context {}, of which the completion "
                                "needs one)",
                                draft.prompt_field(), prompt_length, defaults.max_context - 1, defaults.max_context));
  }
  if (draft.max_tokens.value_or(1) > room) {
    throw LineError(std::string(draft.max_tokens_field),
                    fmt::format("{} {}: at most {} is allowed after a prompt of {} tokens (model.max_context {})",
                                draft.max_tokens_field, *draft.max_tokens, room, prompt_length, defaults.max_context));
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
  ChatRenderer* renderer;
  std::optional<ArrivalTrace> trace;
  double arrival_scale;
  std::int64_t shard_idx, num_shards;
  LineCount line_count;
  std::int64_t num_accepted = 0;
  std::string text;                      // of the line in work
  std::optional<double> last_arrival_s;  // of the line in work or the one before; nothing: no line has said one
  std::int64_t num_behind_trace = 0;
  DigestSet ids;
  std::int64_t num_repeated_ids = 0;
  std::optional<RepeatedId> first_repeated_id;
  std::deque<ReadItem> kept;  // read by pass_over()

  Impl(const RequestInput& input, const RequestDefaults& given, const Tokenizer* given_tokenizer,
       ChatRenderer* given_renderer)
      : lines(input.files, max_line_bytes),
        defaults(given),
        tokenizer(given_tokenizer),
        renderer(given_renderer),
        arrival_scale(input.arrival_scale),
        shard_idx(input.shard_idx),
        num_shards(input.num_shards) {
    if (!input.arrivals.empty()) {
      trace.emplace(input.arrivals);
    }
  }
  void follow_trace();
  void settle_arrival(const json& line);
  void note_id(const RequestOrigin& origin);
  json read_head(RequestDraft& draft);
  AcceptedLine accept(RequestDraft& draft);
  LineReader::Outcome next_line(double patience_s);
  bool count_line();
  ReadItem read(LineReader::Outcome outcome, const InputLine& input_line);
  void drop();
  void pass_over_line(LineReader::Outcome outcome, const EarlierLines& earlier);
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

void RequestReader::Impl::note_id(const RequestOrigin& origin) {
  if (ids.insert(digest_of(origin.custom_id))) {
    return;
  }
  ++num_repeated_ids;
  if (!first_repeated_id) {
    first_repeated_id = RepeatedId{excerpt(json(origin.custom_id)), origin.file, origin.line};
  }
}

// The line without what stands beside its body.
json RequestReader::Impl::read_head(RequestDraft& draft) {
  json line = parse_line(text);
  if (std::optional<std::string> id = read_custom_id(line)) {
    draft.origin.custom_id = std::move(*id);
    note_id(draft.origin);
  }
  settle_arrival(line);
  return line;
}

AcceptedLine RequestReader::Impl::accept(RequestDraft& draft) {
  const json body = take_body(read_head(draft), draft.origin.is_chat);
  read_request_fields(body, draft);
  fit_into_context(draft, defaults);
  settle_sampling(draft, defaults, body);
  draft.origin.arrival_s = last_arrival_s;

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

RequestReader::RequestReader(const RequestInput& input, const RequestDefaults& defaults, const Tokenizer* tokenizer,
                             ChatRenderer* renderer) {
  METRO_REQUIRE(input.arrival_scale > 0.0, fmt::format("arrival_scale {}", input.arrival_scale));
  METRO_REQUIRE(input.shard_idx >= 0 && input.shard_idx < input.num_shards,
                fmt::format("shard {}/{}", input.shard_idx, input.num_shards));
  METRO_REQUIRE(defaults.max_tokens >= 1, fmt::format("max_tokens {}", defaults.max_tokens));
  METRO_REQUIRE(defaults.max_context >= 2 && defaults.max_context <= std::numeric_limits<std::int32_t>::max(),
                fmt::format("max_context {}", defaults.max_context));
  METRO_REQUIRE(defaults.vocab_size >= 1, fmt::format("vocab_size {}", defaults.vocab_size));
  METRO_REQUIRE(defaults.temperature >= 0.0, fmt::format("temperature {}", defaults.temperature));
  impl_ = std::make_unique<Impl>(input, defaults, tokenizer, renderer);
}

RequestReader::RequestReader(const std::string& path, const RequestDefaults& defaults, const Tokenizer* tokenizer)
    : RequestReader(RequestInput{.files = {path}, .arrivals = ""}, defaults, tokenizer) {}

RequestReader::~RequestReader() = default;

std::int64_t RequestReader::num_lines() const {
  return impl_->lines.num_lines();
}

LineCount RequestReader::line_count() const {
  return impl_->line_count;
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

// The next line that is not blank.
LineReader::Outcome RequestReader::Impl::next_line(double patience_s) {
  LineReader::Outcome outcome = LineReader::Outcome::line;
  do {
    outcome = lines.next(text, patience_s);
  } while (outcome == LineReader::Outcome::line && is_blank(text));
  return outcome;
}

ReadItem RequestReader::next(double patience_s) {
  if (!impl_->kept.empty()) {
    ReadItem item = std::move(impl_->kept.front());
    impl_->kept.pop_front();
    return item;
  }
  while (true) {
    const LineReader::Outcome outcome = impl_->next_line(patience_s);
    if (outcome == LineReader::Outcome::end) {
      return std::monostate();
    }
    if (outcome == LineReader::Outcome::waiting) {
      return NotYet();
    }
    if (impl_->count_line()) {
      return impl_->read(outcome, {num_lines(), digest_of(impl_->text)});
    }
    impl_->drop();
  }
}

// Counts the line that was read; whether it is one of this shard.
bool RequestReader::Impl::count_line() {
  const bool is_own = (lines.num_lines() - 1) % num_shards == shard_idx;
  ++line_count.all;
  line_count.own += is_own ? 1 : 0;
  return is_own;
}

ReadItem RequestReader::Impl::read(LineReader::Outcome outcome, const InputLine& input_line) {
  follow_trace();
  RequestDraft draft;
  draft.tokenizer = tokenizer;
  draft.renderer = renderer;
  draft.line = &text;
  draft.vocab_size = defaults.vocab_size;
  draft.origin.file = lines.path();
  draft.origin.line = lines.line_in_file();
  draft.origin.input_line = input_line;
  draft.origin.custom_id = fmt::format("line-{}", input_line.number);
  draft.origin.model = defaults.model;
  const auto reject = [&](const std::string& field, const std::string& message) {
    const RequestOrigin& origin = draft.origin;
    return Rejection{origin.file, origin.line, origin.custom_id, field, excerpt(message, max_message_bytes),
                     input_line};
  };
  if (outcome == LineReader::Outcome::too_long) {
    return reject("", fmt::format("the line is longer than {} bytes", max_line_bytes));
  }
  try {
    return accept(draft);
  } catch (const LineError& error) {
    return reject(error.field, error.what());
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::input) {
      throw;
    }
    return reject(draft.prompt_field(), fmt::format("{}: {}", draft.prompt_field(), error.what()));
  }
}

// Takes of a line that is finished or of another shard what later ones depend on: its row of the trace, when it
// arrived, its custom_id.
void RequestReader::Impl::drop() {
  follow_trace();
  RequestDraft draft;
  draft.origin.file = lines.path();
  draft.origin.line = lines.line_in_file();
  try {
    read_head(draft);
  } catch (const LineError&) {
    // It was rejected when it was read for the first time, or another shard rejects it.
  }
}

void RequestReader::Impl::pass_over_line(LineReader::Outcome outcome, const EarlierLines& earlier) {
  const InputLine input_line{lines.num_lines(), digest_of(text)};
  if (const auto known = earlier.digest_of(input_line.number); known && *known != input_line.digest) {
    throw Error(ExitCode::usage,
                fmt::format("requests.input: line {} of {} is not what it was when the run began (digest {}, was {}); "
                            "give the same input, or --overwrite to begin anew",
                            lines.line_in_file(), lines.path(), to_hex(input_line.digest), to_hex(*known)));
  }
  if (outcome == LineReader::Outcome::line && is_blank(text)) {
    return;
  }
  if (!count_line() || earlier.is_finished(input_line.number)) {
    drop();
  } else {
    kept.push_back(read(outcome, input_line));
  }
}

void RequestReader::pass_over(const EarlierLines& earlier, double patience_s) {
  LineReader& lines = impl_->lines;
  while (lines.num_lines() < earlier.last()) {
    const LineReader::Outcome outcome = lines.next(impl_->text, patience_s);
    if (outcome == LineReader::Outcome::line || outcome == LineReader::Outcome::too_long) {
      impl_->pass_over_line(outcome, earlier);
      continue;
    }
    throw Error(
        ExitCode::usage,
        fmt::format("requests.input: {} {} lines, the run has read {} before and needs the same again; give the "
                    "same input, or --overwrite to begin anew",
                    lines.path() == standard_input ? "standard input" : lines.path(),
                    outcome == LineReader::Outcome::end
                        ? fmt::format("ends the input after {}", lines.num_lines())
                        : fmt::format("sends nothing for {:g} s after {}", patience_s, lines.num_lines()),
                    earlier.last()));
  }
}

}  // namespace metro
