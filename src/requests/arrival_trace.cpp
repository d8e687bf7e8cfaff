#include "requests/arrival_trace.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "requests/request_fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

namespace metro {

namespace {

constexpr std::int64_t max_line_bytes = std::int64_t{1} << 20;
constexpr double most_ms = 1e15;  // 30,000 years; sums and products with it stay finite

// Takes a number of exactly `num_digits` digits off the front of `text`; nothing if there is none.
std::optional<int> take_digits(std::string_view& text, std::size_t num_digits) {
  int value = 0;
  for (std::size_t i = 0; i < num_digits; ++i) {
    if (i >= text.size() || text[i] < '0' || text[i] > '9') {
      return std::nullopt;
    }
    value = 10 * value + (text[i] - '0');
  }
  text.remove_prefix(num_digits);
  return value;
}

bool take(std::string_view& text, std::string_view choices) {
  if (text.empty() || choices.find(text.front()) == std::string_view::npos) {
    return false;
  }
  text.remove_prefix(1);
  return true;
}

// Two-digit numbers with ':' between them, as many as `values` has.
bool take_clock(std::string_view& text, std::span<int> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0 && !take(text, ":")) {
      return false;
    }
    const auto value = take_digits(text, 2);
    if (!value) {
      return false;
    }
    values[i] = *value;
  }
  return true;
}

// ".9799600" as seconds; 0 without a point.
std::optional<double> take_fraction(std::string_view& text) {
  if (!take(text, ".")) {
    return 0.0;
  }
  double fraction = 0.0;
  double unit = 0.1;
  std::size_t num_digits = 0;
  for (; num_digits <= 9 && !text.empty(); ++num_digits, unit /= 10.0) {
    const auto digit = take_digits(text, 1);
    if (!digit) {
      break;
    }
    fraction += unit * *digit;
  }
  return num_digits >= 1 && num_digits <= 9 ? std::optional(fraction) : std::nullopt;
}

// "+02:00" as seconds; 0 for "Z" and for nothing.
std::optional<std::int64_t> take_offset(std::string_view& text) {
  if (text.empty() || take(text, "Z")) {
    return 0;
  }
  const bool is_negative = text.front() == '-';
  int clock[2] = {};
  if (!take(text, "+-") || !take_clock(text, clock) || clock[0] > 23 || clock[1] > 59) {
    return std::nullopt;
  }
  const std::int64_t offset_s = 3600 * clock[0] + 60 * clock[1];
  return is_negative ? -offset_s : offset_s;
}

// The fields of a line of CSV without quotes, which timestamps and counts do not need.
std::string_view field_of(std::string_view row, std::int64_t column) {
  for (; column > 0; --column) {
    const std::size_t comma = row.find(',');
    if (comma == std::string_view::npos) {
      return {};
    }
    row.remove_prefix(comma + 1);
  }
  return row.substr(0, row.find(','));
}

std::int64_t time_column_of(std::string_view header) {
  const auto num_columns = 1 + std::count(header.begin(), header.end(), ',');
  for (std::int64_t column = 0; column < num_columns; ++column) {
    if (field_of(header, column) == "TIMESTAMP") {
      return column;
    }
  }
  return -1;
}

}  // namespace

std::optional<double> parse_timestamp(std::string_view text) {
  using namespace std::chrono;
  const auto year_number = take_digits(text, 4);
  const auto month_number = take(text, "-") ? take_digits(text, 2) : std::nullopt;
  const auto day_number = take(text, "-") ? take_digits(text, 2) : std::nullopt;
  int clock[3] = {};
  if (!year_number || !month_number || !day_number || !take(text, " T") || !take_clock(text, clock)) {
    return std::nullopt;
  }
  const auto fraction = take_fraction(text);
  const auto offset_s = take_offset(text);
  const year_month_day date{year(*year_number), month(static_cast<unsigned>(*month_number)),
                            day(static_cast<unsigned>(*day_number))};
  if (!fraction || !offset_s || !text.empty() || !date.ok() || clock[0] > 23 || clock[1] > 59 || clock[2] > 60) {
    return std::nullopt;
  }
  const std::int64_t days = sys_days(date).time_since_epoch().count();
  return static_cast<double>(86400 * days + 3600 * clock[0] + 60 * clock[1] + clock[2] - *offset_s) + *fraction;
}

ArrivalTrace::ArrivalTrace(const std::string& path) : path_(path), lines_(path, max_line_bytes) {
  if (path == "-") {
    throw Error(ExitCode::usage, "requests.arrivals = \"-\": a file is expected; standard input is for requests only");
  }
  std::string line;
  const bool is_empty = !next_line(line);
  if (!is_empty && line.front() == '{') {
    pending_ = line;
    return;
  }
  time_column_ = time_column_of(line);
  if (time_column_ < 0) {
    fail(
        fmt::format("{}; a trace of arrivals begins with a CSV header that has a column TIMESTAMP, or is JSON lines "
                    "with \"timestamp\" in milliseconds",
                    is_empty ? "it is empty" : fmt::format("'{}'", excerpt(line, 60))));
  }
}

void ArrivalTrace::fail(const std::string& message) const {
  throw Error(ExitCode::input, fmt::format("requests.arrivals: {}:{}: {}", path_, lines_.line_in_file(), message));
}

// The next line that is not blank.
bool ArrivalTrace::next_line(std::string& line) {
  while (true) {
    const LineReader::Outcome outcome = lines_.next(line);
    if (outcome == LineReader::Outcome::end) {
      return false;
    }
    if (outcome == LineReader::Outcome::too_long) {
      fail(fmt::format("the line is longer than {} bytes", max_line_bytes));
    }
    if (line.find_first_not_of(" \t") != std::string::npos) {
      return true;
    }
  }
}

double ArrivalTrace::time_of_row(std::string_view row) const {
  if (time_column_ >= 0) {
    const std::string_view field = field_of(row, time_column_);
    const auto time_s = parse_timestamp(field);
    if (!time_s) {
      fail(fmt::format("TIMESTAMP '{}': a time such as 2023-11-16 18:17:03.9799600 is expected", excerpt(field, 60)));
    }
    return *time_s;
  }
  const auto object =
      parse_json(row, fmt::format("requests.arrivals: {}:{}", path_, lines_.line_in_file()), ExitCode::input);
  const auto time = object.find("timestamp");
  if (time == object.end()) {
    fail("timestamp: missing; a number of milliseconds is expected");
  }
  if (!time->is_number() || std::abs(time->get<double>()) > most_ms) {
    fail(fmt::format("timestamp {}: a number of milliseconds is expected, at most {:g}", excerpt(*time), most_ms));
  }
  return time->get<double>() / 1e3;
}

std::optional<double> ArrivalTrace::next_s() {
  std::string row;
  if (!pending_.empty()) {
    row.swap(pending_);
  } else if (!next_line(row)) {
    return std::nullopt;
  }
  const double time_s = time_of_row(row);
  if (num_rows_ == 0) {
    first_s_ = time_s;
  } else if (time_s < last_s_) {
    fail(fmt::format("the request arrives {:.7g} s before the one above; rows must be in the order of time",
                     last_s_ - time_s));
  }
  ++num_rows_;
  last_s_ = time_s;
  return time_s - first_s_;
}

}  // namespace metro
