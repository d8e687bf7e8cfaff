#include "base/last_words.hpp"

#include "base/error.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace metro {

namespace {

// What a signal handler may touch.
std::array<char, 160> identity{"a rank"};
std::atomic<std::int64_t> own_rank{0};
std::atomic<const char*> phase{"start"};
std::atomic<std::byte*> flag_for_others{nullptr};
std::atomic<bool> has_said{false};
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

struct Crash {
  int signal;
  const char* what;
  struct sigaction before;
};
std::array<Crash, 5> crashes{{{SIGSEGV, "crashed, signal 11 (segmentation fault)", {}},
                              {SIGBUS, "crashed, signal 7 (bus error)", {}},
                              {SIGFPE, "crashed, signal 8 (arithmetic error)", {}},
                              {SIGILL, "crashed, signal 4 (illegal instruction)", {}},
                              {SIGABRT, "crashed, signal 6 (abort)", {}}}};

// The stack may be what has run out.
alignas(16) std::array<char, std::size_t{1} << 16> crash_stack;

iovec piece(const char* text) {
  return {const_cast<char*>(text), std::strlen(text)};
}

void on_crash(int signal) {
  for (const Crash& crash : crashes) {
    if (crash.signal == signal) {
      write_last_words(crash.what);
      ::sigaction(signal, &crash.before, nullptr);
    }
  }
  ::raise(signal);  // delivered when this handler returns, and handled as it was before
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool under_sanitizer = true;
#else
constexpr bool under_sanitizer = false;
#endif

}  // namespace

void set_identity(std::int64_t rank, const std::string& host) {
  const std::string text = "rank " + std::to_string(rank) + " (" + excerpt(host, identity.size() / 2) + ")";
  identity.fill('\0');
  text.copy(identity.data(), identity.size() - 1);
  own_rank = rank;
}

std::int64_t identity_rank() {
  return own_rank;
}

void set_current_phase(const char* new_phase) {
  phase = new_phase;
}

const char* current_phase() {
  return phase;
}

void write_last_words(const char* what) {
  if (has_said.exchange(true)) {
    return;
  }
  const std::array<iovec, 7> line{piece("metro: error on "),
                                  piece(identity.data()),
                                  piece(" during "),
                                  piece(phase.load()),
                                  piece(": "),
                                  piece(what),
                                  piece("\n")};
  while (::writev(STDERR_FILENO, line.data(), static_cast<int>(line.size())) < 0 && errno == EINTR) {
  }
  leave_silently();
}

void leave_silently() {
  has_said = true;
  if (std::byte* const flag = flag_for_others; flag != nullptr) {
    *static_cast<volatile std::byte*>(flag) = std::byte{1};
  }
}

void set_said_flag(std::byte* flag) {
  flag_for_others = flag;
}

std::byte* said_flag() {
  return flag_for_others;
}

void report_crashes() {
  if (under_sanitizer) {
    return;
  }
  stack_t stack{};
  stack.ss_sp = crash_stack.data();
  stack.ss_size = crash_stack.size();
  bool is_set = ::sigaltstack(&stack, nullptr) == 0;
  for (Crash& crash : crashes) {
    struct sigaction action {};
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    is_set = is_set && ::sigaction(crash.signal, &action, &crash.before) == 0;
  }
  if (!is_set) {
    throw Error(ExitCode::machine, std::string("cannot watch for crashes: ") + std::strerror(errno));
  }
}

}  // namespace metro
