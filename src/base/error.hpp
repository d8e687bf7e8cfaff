// The two kinds of failure and the exit codes of the program.
// Error: the user or the world (bad deck, damaged file, failed write). Bug: a broken invariant of ours.
// Both are thrown where they are found and caught in main() only.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace metro {

// Exit codes, as documented in README.md.
enum class ExitCode : int {
  done = 0,
  usage = 2,       // command line, deck, plan that does not fit, unwritable output
  input = 3,       // input file; with --strict also: lines were rejected
  checkpoint = 4,  // checkpoint or Hugging Face folder: missing, damaged, unsupported
  machine = 5,     // a peer or the machine failed, disk full
  internal = 70,   // Bug, disagreement between ranks
  stopped = 75,    // stopped by a signal, resumable
};

// Text cut to at most max_bytes at a boundary of UTF-8 characters, then "...": for what a message quotes.
std::string excerpt(std::string_view text, std::size_t max_bytes);
// Of one value, so that what was allowed still follows it.
inline constexpr std::size_t most_quoted = 1000;

// A failure that the user or the world caused. `message` names the key, file or line, the value, and what was allowed.
class Error : public std::runtime_error {
 public:
  // Messages quote names and values of files that others wrote: what is longer than longest_message is cut.
  Error(ExitCode exit_code, const std::string& message)
      : std::runtime_error(excerpt(message, longest_message)), exit_code_(exit_code) {}
  ExitCode exit_code() const { return exit_code_; }

  static constexpr std::size_t longest_message = 8000;  // with paths of up to 4096 bytes in it

 private:
  ExitCode exit_code_;
};

// An Error that every rank throws together, so that one of them prints it and all leave cleanly.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// A broken invariant of the program itself.
class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// `text` with control characters shown as ?, so that a message stays one line whatever name it quotes.
std::string one_line(std::string text);

[[noreturn]] void throw_bug(const char* file, int line, const char* expression, const std::string& detail);

}  // namespace metro

// Throws Bug when `condition` is false. `detail` (a std::string expression) is evaluated only then.
#define METRO_REQUIRE(condition, detail)                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      ::metro::throw_bug(__FILE__, __LINE__, #condition, std::string(detail)); \
    }                                                                          \
  } while (false)
