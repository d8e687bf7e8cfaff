#include "requests/line_reader.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace metro {

namespace {

constexpr std::size_t buffer_bytes = 1 << 18;

// For messages.
std::string name_of(const std::string& path) {
  return path == standard_input ? "standard input" : path;
}

}  // namespace

LineReader::LineReader(std::vector<std::string> paths, std::int64_t max_line_bytes)
    : paths_(std::move(paths)), max_line_bytes_(max_line_bytes), buffer_(buffer_bytes) {
  METRO_REQUIRE(!paths_.empty(), "no path");
  for (const std::string& path : paths_) {
    try {
      require_readable(path);
    } catch (const SourceError& error) {
      throw Error(ExitCode::input, fmt::format("cannot open {}: {}", name_of(path), error.what()));
    }
  }
}

LineReader::LineReader(const std::string& path, std::int64_t max_line_bytes)
    : LineReader(std::vector{path}, max_line_bytes) {}

// 0 at the end of the file, nothing when patience ended.
std::optional<std::size_t> LineReader::refill(double patience_s) {
  std::optional<std::size_t> count;
  try {
    if (!source_) {
      source_ = open_source(path());
    }
    count = source_->read(buffer_, patience_s);
  } catch (const SourceError& error) {
    throw Error(ExitCode::input,
                fmt::format("cannot read {} after line {}: {}", name_of(path()), line_in_file_, error.what()));
  }
  begin_ = 0;
  end_ = count.value_or(0);
  return count;
}

// Moves what belongs to the line in work from the buffer, which is not empty.
void LineReader::take_from_buffer() {
  // A trailing "\r" does not count, so one byte more than the limit may be held.
  const auto most_held = static_cast<std::size_t>(max_line_bytes_) + 1;
  const char* first = buffer_.data() + begin_;
  const auto* newline = static_cast<const char*>(std::memchr(first, '\n', end_ - begin_));
  is_started_ = true;
  is_complete_ = newline != nullptr;
  const std::size_t count = is_complete_ ? static_cast<std::size_t>(newline - first) : end_ - begin_;
  begin_ += count + (is_complete_ ? 1 : 0);
  if (is_too_long_ || line_.size() + count > most_held) {
    is_too_long_ = true;
    line_ = std::string();  // gives the memory back
  } else {
    line_.append(first, count);
  }
}

LineReader::Outcome LineReader::finish_line(std::string& text) {
  ++num_lines_;
  ++line_in_file_;
  if (line_.ends_with('\r')) {
    line_.pop_back();
  }
  const bool is_too_long = is_too_long_ || std::ssize(line_) > max_line_bytes_;
  text.swap(line_);
  line_.clear();
  is_started_ = is_too_long_ = is_complete_ = false;
  if (is_too_long) {
    text = std::string();
    return Outcome::too_long;
  }
  return Outcome::line;
}

LineReader::Outcome LineReader::next(std::string& text, double patience_s) {
  text.clear();
  while (!is_complete_) {
    if (begin_ < end_) {
      take_from_buffer();
      continue;
    }
    const std::optional<std::size_t> count = refill(patience_s);
    if (!count) {
      return Outcome::waiting;
    }
    if (*count > 0) {
      continue;
    }
    if (is_started_) {
      break;  // the last line of the file
    }
    if (path_idx_ + 1 == paths_.size()) {
      return Outcome::end;
    }
    ++path_idx_;
    line_in_file_ = 0;
    source_.reset();
  }
  return finish_line(text);
}

}  // namespace metro
