#include "requests/line_journal.hpp"

#include "base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace metro {

namespace {

// An entry as it is stored; the last word is the digest of those before it.
using Stored = std::array<std::uint64_t, 7>;
constexpr std::size_t num_digested = 6;

Digest digest_of_stored(const Stored& stored) {
  return digest_of_values(std::span<const std::uint64_t>(stored).first(num_digested));
}

Stored pack(const JournalEntry& entry) {
  Stored stored{static_cast<std::uint64_t>(entry.line.number),
                entry.line.digest,
                static_cast<std::uint64_t>(entry.file),
                static_cast<std::uint64_t>(entry.begin),
                static_cast<std::uint64_t>(entry.num_bytes),
                entry.digest,
                0};
  stored[num_digested] = digest_of_stored(stored);
  return stored;
}

JournalEntry unpack(const Stored& stored) {
  return {{static_cast<std::int64_t>(stored[0]), stored[1]},
          static_cast<OutputFile>(stored[2]),
          static_cast<std::int64_t>(stored[3]),
          static_cast<std::int64_t>(stored[4]),
          stored[5]};
}

// What append() can have written.
bool is_sound(const Stored& stored) {
  const JournalEntry entry = unpack(stored);
  return stored[num_digested] == digest_of_stored(stored) && entry.line.number >= 1 && stored[2] <= 1 &&
         entry.begin >= 0 && entry.num_bytes >= 1;
}

}  // namespace

LineJournal::LineJournal(const std::string& path, double patience_s)
    : path_(path), descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  if (descriptor_ < 0) {
    const std::string reason = errno == ELOOP ? "it is a symbolic link" : std::strerror(errno);
    throw Error(ExitCode::usage, fmt::format("cannot open {}: {}", path, reason));
  }
  try {
    lock(patience_s);
  } catch (const Error&) {
    ::close(descriptor_);  // the destructor does not run when the constructor throws
    throw;
  }
}

LineJournal::~LineJournal() {
  ::close(descriptor_);
}

void LineJournal::fail(const char* what) const {
  throw Error(ExitCode::machine, fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno)));
}

void LineJournal::lock(double patience_s) const {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) {
      continue;
    }
    if (errno != EWOULDBLOCK) {
      return;  // a file system without locks
    }
    if (std::chrono::duration<double>(Clock::now() - begin).count() > patience_s) {
      throw Error(ExitCode::usage, fmt::format("{} is in use: another run works in this folder", path_));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::int64_t LineJournal::recover(const std::function<bool(const JournalEntry&)>& keep) {
  constexpr std::size_t entries_at_a_time = 4096;
  std::vector<Stored> chunk(entries_at_a_time);
  std::int64_t num_kept = 0;
  for (bool is_sound_so_far = true; is_sound_so_far;) {
    const auto offset = num_kept * static_cast<std::int64_t>(sizeof(Stored));
    const ssize_t count = ::pread(descriptor_, chunk.data(), chunk.size() * sizeof(Stored), offset);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail("read");
    }
    const std::size_t num_whole = static_cast<std::size_t>(count) / sizeof(Stored);
    is_sound_so_far = num_whole > 0;
    for (std::size_t i = 0; i < num_whole && is_sound_so_far; ++i) {
      is_sound_so_far = is_sound(chunk[i]) && keep(unpack(chunk[i]));
      num_kept += is_sound_so_far ? 1 : 0;
    }
  }
  const auto end = num_kept * static_cast<std::int64_t>(sizeof(Stored));
  if (::ftruncate(descriptor_, end) != 0 || ::lseek(descriptor_, end, SEEK_SET) < 0) {
    fail("cut");
  }
  return num_kept;
}

void LineJournal::append(const JournalEntry& entry) {
  const Stored stored = pack(entry);
  const auto bytes = std::as_bytes(std::span(stored));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno != EINTR) {
      fail("write");
    }
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

void LineJournal::flush() {
  int result = 0;
  do {
    result = ::fsync(descriptor_);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    fail("flush");
  }
}

}  // namespace metro
