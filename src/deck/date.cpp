#include "deck/date.hpp"

#include <chrono>
#include <cstddef>

namespace metro {

namespace {

constexpr std::string_view day_form = "dddd-dd-dd";
constexpr std::string_view time_form = "dddd-dd-dd dd:dd:dd";

bool has_form(std::string_view text, std::string_view form) {
  if (text.size() != form.size()) {
    return false;
  }
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (form[i] == 'd' ? !is_digit : text[i] != form[i]) {
      return false;
    }
  }
  return true;
}

int number_at(std::string_view text, std::size_t begin, std::size_t length) {
  int number = 0;
  for (const char digit : text.substr(begin, length)) {
    number = 10 * number + (digit - '0');
  }
  return number;
}

}  // namespace

bool is_date(std::string_view text) {
  const bool has_time = has_form(text, time_form);
  if (!has_time && !has_form(text, day_form)) {
    return false;
  }
  const std::chrono::year_month_day day{std::chrono::year(number_at(text, 0, 4)),
                                        std::chrono::month(static_cast<unsigned>(number_at(text, 5, 2))),
                                        std::chrono::day(static_cast<unsigned>(number_at(text, 8, 2)))};
  const bool time_exists =
      !has_time || (number_at(text, 11, 2) < 24 && number_at(text, 14, 2) < 60 && number_at(text, 17, 2) < 60);
  return day.ok() && day.year() >= std::chrono::year(1000) && time_exists;
}

}  // namespace metro
