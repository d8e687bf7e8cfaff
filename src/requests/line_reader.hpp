// Lines of files that may be larger than memory: one line at a time, with a bound on the length of a line. Files are
// read one after the other, plain or compressed (byte_source.hpp); a line never goes on in the next file.
#pragma once

#include "requests/byte_source.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace metro {

class LineReader {
 public:
  enum class Outcome {
    line,
    too_long,
    waiting,  // what comes from another process is not there yet
    end
  };

  // paths: at least one; "-" is standard input. Throws Error(input) if one cannot be opened or is a folder. All but the
  // first are opened when their turn comes.
  LineReader(std::vector<std::string> paths, std::int64_t max_line_bytes);
  LineReader(const std::string& path, std::int64_t max_line_bytes);

  // Puts the next line into `text`, without its "\n" or "\r\n"; the last line of a file needs no "\n". A line longer
  // than max_line_bytes is skipped without holding it: text is then empty. Outcome `waiting` when a pipe gave no whole
  // line and nothing for patience_s seconds; what it gave is kept for the next call. Throws Error(input) on a read
  // error and for damaged compression.
  Outcome next(std::string& text, double patience_s = for_ever_s);

  // Where the last line came from.
  const std::string& path() const { return paths_[path_idx_]; }
  std::int64_t line_in_file() const { return line_in_file_; }  // from 1
  std::int64_t num_lines() const { return num_lines_; }        // of all files so far, those that were too long included

 private:
  std::optional<std::size_t> refill(double patience_s);
  void take_from_buffer();
  Outcome finish_line(std::string& text);

  std::vector<std::string> paths_;
  std::size_t path_idx_ = 0;
  std::int64_t max_line_bytes_;
  std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // unread bytes: buffer_[begin_, end_)
  std::size_t end_ = 0;
  std::string line_;  // the line in work, as far as it was read
  bool is_started_ = false;
  bool is_too_long_ = false;
  bool is_complete_ = false;
  std::int64_t line_in_file_ = 0;
  std::int64_t num_lines_ = 0;
};

}  // namespace metro
