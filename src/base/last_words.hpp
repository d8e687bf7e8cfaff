// Who this process is and what it does, kept where a signal handler finds it, and the line that a process writes when
// it cannot go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace metro {

// Until it is called, messages say "a rank".
void set_identity(std::int64_t rank, const std::string& host);
// 0 until it is set.
std::int64_t identity_rank();

// What this process is doing ("combine"), for messages. A literal: it is kept, not copied.
void set_current_phase(const char* phase);
const char* current_phase();

// Writes "metro: error on rank 1 (node7) during combine: WHAT" to stderr, straight away and as one line. From any
// thread, also in a signal handler. Only the first call of a process does anything.
void write_last_words(const char* what);

// The process has said why it ends, so that nobody else need explain it: a later write_last_words() does nothing.
void leave_silently();

// A byte in memory that other processes see: it becomes 1 when this one has said why it ends. nullptr: none.
void set_said_flag(std::byte* flag);
std::byte* said_flag();

// From now on a process that crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes its last words; what the signal
// did before comes after that. Does nothing under a sanitizer, which reports crashes itself. Throws Error(machine).
void report_crashes();

}  // namespace metro
