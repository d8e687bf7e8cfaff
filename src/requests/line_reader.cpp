#include "requests/line_reader.hpp"

#include "base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace metro {

namespace {

constexpr std::size_t buffer_bytes = 1 << 18;

}  // namespace

LineReader::LineReader(const std::string& path, std::int64_t max_line_bytes)
    : path_(path),
      max_line_bytes_(max_line_bytes),
      descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)),
      buffer_(buffer_bytes) {
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0 || S_ISDIR(status.st_mode)) {
    // The destructor does not run when the constructor throws.
    const std::string reason = descriptor_ >= 0 && S_ISDIR(status.st_mode) ? "it is a folder" : std::strerror(errno);
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    throw Error(ExitCode::input, fmt::format("cannot open {}: {}", path, reason));
  }
}

LineReader::~LineReader() {
  ::close(descriptor_);
}

// False at the end of the file.
bool LineReader::refill() {
  ssize_t count = 0;
  do {
    count = ::read(descriptor_, buffer_.data(), buffer_.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    throw Error(ExitCode::input,
                fmt::format("cannot read {} after line {}: {}", path_, num_lines_, std::strerror(errno)));
  }
  begin_ = 0;
  end_ = static_cast<std::size_t>(count);
  return count > 0;
}

LineReader::Outcome LineReader::next(std::string& text) {
  text.clear();
  // A trailing "\r" does not count, so one byte more than the limit may be held.
  const auto most_held = static_cast<std::size_t>(max_line_bytes_) + 1;
  bool is_started = false;
  bool is_too_long = false;
  bool is_complete = false;
  while (!is_complete && (begin_ < end_ || refill())) {
    is_started = true;
    const char* first = buffer_.data() + begin_;
    const auto* newline = static_cast<const char*>(std::memchr(first, '\n', end_ - begin_));
    is_complete = newline != nullptr;
    const std::size_t count = is_complete ? static_cast<std::size_t>(newline - first) : end_ - begin_;
    begin_ += count + (is_complete ? 1 : 0);
    if (is_too_long || text.size() + count > most_held) {
      is_too_long = true;
      text = std::string();  // gives the memory back
    } else {
      text.append(first, count);
    }
  }
  if (!is_started) {
    return Outcome::end;
  }
  ++num_lines_;
  if (text.ends_with('\r')) {
    text.pop_back();
  }
  if (is_too_long || text.size() >= most_held) {
    text = std::string();
    return Outcome::too_long;
  }
  return Outcome::line;
}

}  // namespace metro
