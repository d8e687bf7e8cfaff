// When requests arrive, from a trace of real traffic (docs/requests.md, "Arrivals"). Two forms, known by the first
// line:
//   CSV with a header that has a column TIMESTAMP, "2023-11-16 18:17:03.9799600" (Azure LLM inference traces)
//   JSON lines with "timestamp" in milliseconds (Mooncake traces)
// Read as a stream, one row per request, plain or compressed. Rank 0 only.
#pragma once

#include "requests/line_reader.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace metro {

class ArrivalTrace {
 public:
  // Throws Error(input) if the file cannot be read or its first line is of neither form.
  explicit ArrivalTrace(const std::string& path);

  // Seconds from the first row to the next one, never less than before; nothing behind the last row. Throws
  // Error(input) with file and line for a row that is malformed or earlier than the one before.
  std::optional<double> next_s();

  const std::string& path() const { return path_; }
  std::int64_t num_rows() const { return num_rows_; }  // so far

 private:
  bool next_line(std::string& line);
  double time_of_row(std::string_view row) const;
  [[noreturn]] void fail(const std::string& message) const;

  std::string path_;
  LineReader lines_;
  std::string pending_;            // the first row of JSON lines, which has no header before it
  std::int64_t time_column_ = -1;  // of CSV; -1: JSON lines
  std::int64_t num_rows_ = 0;
  double first_s_ = 0.0;
  double last_s_ = 0.0;
};

// Seconds since 1970, to a quarter of a microsecond, of "YYYY-MM-DD hh:mm:ss", with up to nine digits of a fraction and
// an offset such as "+00:00" or "Z" behind it, if any; 'T' may stand for the space. Nothing if `text` is not that.
std::optional<double> parse_timestamp(std::string_view text);

}  // namespace metro
