#include "tokenizer/regex.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "tokenizer/regex_syntax.hpp"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <new>

namespace metro::text {

namespace {

// Steps that one search may take from one start. A run of spaces costs about one step per space; only expressions
// that try exponentially many ways get this far.
constexpr std::uint32_t max_steps = 100'000'000;
constexpr std::uint32_t max_heap_kib = 512 * 1024;

template <auto release>
struct Releaser {
  template <class T>
  void operator()(T* handle) const {
    release(handle);
  }
};

using Code = std::unique_ptr<pcre2_code, Releaser<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Releaser<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Releaser<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Releaser<pcre2_match_data_free>>;

template <class Handle, class T>
Handle owned(T* handle) {
  if (handle == nullptr) {
    throw std::bad_alloc();
  }
  return Handle(handle);
}

PCRE2_SPTR units_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
}

std::string reason_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  if (pcre2_get_error_message(code, buffer.data(), buffer.size()) == PCRE2_ERROR_BADDATA) {
    return fmt::format("PCRE2 error {}", code);
  }
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct Regex::Compiled {
  Code code;
  MatchContext context;
};

Regex::Regex(std::string_view pattern, Syntax syntax, const std::string& origin)
    : compiled_(std::make_unique<Compiled>()) {
  const std::string translated = syntax == Syntax::oniguruma ? to_pcre2_syntax(pattern, origin) : std::string(pattern);
  const std::uint32_t options =
      PCRE2_UTF | (syntax == Syntax::literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  const auto context = owned<CompileContext>(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);

  int error = 0;
  PCRE2_SIZE error_at = 0;
  compiled_->code.reset(
      pcre2_compile(units_of(translated), translated.size(), options, &error, &error_at, context.get()));
  if (compiled_->code == nullptr) {
    throw Error(ExitCode::checkpoint,
                fmt::format("{}: regular expression {:?} is not supported: {}", origin, pattern, reason_of(error)));
  }
  const int jit = pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
  if (jit != 0 && jit != PCRE2_ERROR_JIT_BADOPTION && jit != PCRE2_ERROR_NOMEMORY) {
    throw Error(ExitCode::checkpoint, fmt::format("{}: regular expression {:?}: {}", origin, pattern, reason_of(jit)));
  }

  compiled_->context = owned<MatchContext>(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(compiled_->context.get(), max_steps);
  pcre2_set_heap_limit(compiled_->context.get(), max_heap_kib);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

struct Regex::Matches::State {
  const Compiled* compiled;
  std::string_view text;
  MatchData data;
  std::size_t search_from = 0;
  std::optional<std::size_t> previous_end;

  // One search. The text is known to be UTF-8: checking it anew in every call would take quadratic time.
  int search(std::uint32_t options) const {
    return pcre2_match(compiled->code.get(), units_of(text), text.size(), search_from, PCRE2_NO_UTF_CHECK | options,
                       data.get(), compiled->context.get());
  }
};

Regex::Matches::Matches(const Regex& regex, std::string_view utf8)
    : state_(std::make_unique<State>(
          State{regex.compiled_.get(), utf8, owned<MatchData>(pcre2_match_data_create(1, nullptr)), 0, {}})) {}

Regex::Matches::~Matches() = default;

std::optional<Range> Regex::Matches::next() {
  State& state = *state_;
  while (state.search_from <= state.text.size()) {
    int result = state.search(0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = state.search(PCRE2_NO_JIT);  // the interpreter keeps its state on the heap
    }
    if (result == PCRE2_ERROR_NOMATCH) {
      state.search_from = state.text.size() + 1;
      return std::nullopt;
    }
    if (result < 0) {
      throw Error(ExitCode::input, fmt::format("cannot split a text of {} bytes into words at byte {}: {}",
                                               state.text.size(), state.search_from, reason_of(result)));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data.get());
    const Range match{bounds[0], bounds[1]};
    if (match.begin == match.end && state.previous_end == match.end) {
      // Nothing new here: look on from the next character.
      const bool is_at_end = state.search_from == state.text.size();
      state.search_from += is_at_end ? 1 : sequence_at(state.text, state.search_from).length;
      continue;
    }
    state.search_from = match.end;
    state.previous_end = match.end;
    return match;
  }
  return std::nullopt;
}

}  // namespace metro::text
