// The bytes of an input file, of a pipe or of standard input, one after the other and unpacked on the way: gzip and
// zstd are known by the bytes they begin with, not by the name of the file. Holds a few buffers of fixed size, never a
// file.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace metro {

// What stands for standard input among paths.
inline constexpr const char* standard_input = "-";

// Why bytes cannot be had: no access, a failed read, damaged or truncated compression. The caller adds file and line.
struct SourceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr double for_ever_s = std::numeric_limits<double>::infinity();

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills the front of `room` (not empty) and returns how many bytes that are; 0 at the end. Nothing if they come from
  // another process that sent none for patience_s seconds; files are never waited for. Throws SourceError.
  virtual std::optional<std::size_t> read(std::span<char> room, double patience_s) = 0;
};

// Throws SourceError if there is nothing to read at `path`: missing, a folder, no permission. Opens nothing, since
// opening a named pipe would wait for its other end.
void require_readable(const std::string& path);

// Opens `path`, or standard input for "-". Throws SourceError if that fails.
std::unique_ptr<ByteSource> open_source(const std::string& path);

// The unpacked bytes of `packed`, whose next byte is the first of the compressed data. For open_source().
std::unique_ptr<ByteSource> make_gzip_source(std::unique_ptr<ByteSource> packed);
std::unique_ptr<ByteSource> make_zstd_source(std::unique_ptr<ByteSource> packed);

}  // namespace metro
