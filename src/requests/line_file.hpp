// A file that grows by whole lines: each line is handed to the operating system before write() returns, and a line
// that could not be written whole is cut off again, so that the file never ends inside a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace metro {

class LineFile {
 public:
  // Creates the file; one that is there is refused. With `append` it goes on behind what is there, if anything.
  // Symbolic links are refused. Throws Error(usage) with path and reason.
  LineFile(const std::string& path, bool append);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  std::int64_t num_bytes() const { return num_bytes_; }  // of whole lines

  // Appends `line` and "\n". Throws Error(machine) when that fails (disk full).
  void write(std::string_view line);

  // Asks for the lines to be on the disk. Throws Error(machine) when that fails, or when the path has come to name
  // another file or none.
  void flush();

 private:
  [[noreturn]] void fail(const char* what) const;
  void require_in_place() const;

  std::string path_;
  int descriptor_;
  std::int64_t num_bytes_ = 0;
  std::string line_;  // with its "\n"
};

}  // namespace metro
