// Lines of a file that may be larger than memory: one line at a time, with a bound on the length of a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

class LineReader {
 public:
  enum class Outcome { line, too_long, end };

  // Throws Error(input) if the file cannot be opened or is a folder.
  LineReader(const std::string& path, std::int64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Puts the next line into `text`, without its "\n" or "\r\n"; the last line of a file needs no "\n". A line longer
  // than max_line_bytes is skipped without holding it: text is then empty. Throws Error(input) on a read error.
  Outcome next(std::string& text);

  std::int64_t num_lines() const { return num_lines_; }  // lines returned so far, those that were too long included

 private:
  bool refill();

  std::string path_;
  std::int64_t max_line_bytes_;
  int descriptor_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // unread bytes: buffer_[begin_, end_)
  std::size_t end_ = 0;
  std::int64_t num_lines_ = 0;
};

}  // namespace metro
