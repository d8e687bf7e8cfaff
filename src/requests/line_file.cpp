#include "requests/line_file.hpp"

#include "base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace metro {

LineFile::LineFile(const std::string& path, bool append)
    : path_(path),
      descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (append ? 0 : O_EXCL), 0666)) {
  if (descriptor_ < 0) {
    const std::string reason = errno == ELOOP ? "it is a symbolic link" : std::strerror(errno);
    throw Error(ExitCode::usage, fmt::format("cannot create {}: {}", path, reason));
  }
  num_bytes_ = std::max<std::int64_t>(0, ::lseek(descriptor_, 0, SEEK_END));  // negative: no file that has an end
}

LineFile::~LineFile() {
  ::close(descriptor_);
}

void LineFile::fail(const char* what) const {
  throw Error(ExitCode::machine, fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno)));
}

void LineFile::write(std::string_view line) {
  line_.assign(line);
  line_ += '\n';
  std::string_view rest = line_;
  while (!rest.empty()) {
    const ssize_t count = ::write(descriptor_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      const int reason = errno;
      // If this fails too, the first failure is the one to report.
      [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, num_bytes_);
      errno = reason;
      fail("write");
    }
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  num_bytes_ += static_cast<std::int64_t>(line_.size());
}

void LineFile::flush() {
  int result = 0;
  do {
    result = ::fsync(descriptor_);
  } while (result != 0 && errno == EINTR);
  // EINVAL: something that has no disk behind it, such as a device.
  if (result != 0 && errno != EINVAL) {
    fail("flush");
  }
  require_in_place();
}

// Whoever removes the folder of a run, or moves its output away, would otherwise be told that all went well.
void LineFile::require_in_place() const {
  struct stat written {};
  struct stat there {};
  const bool is_there = ::stat(path_.c_str(), &there) == 0;
  if (::fstat(descriptor_, &written) != 0) {
    fail("look at");
  }
  if (!is_there || written.st_ino != there.st_ino || written.st_dev != there.st_dev) {
    throw Error(ExitCode::machine,
                fmt::format("{} was {} while it was written", path_, is_there ? "replaced" : "removed"));
  }
}

}  // namespace metro
