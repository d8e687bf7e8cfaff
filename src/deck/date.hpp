// requests.date: a day of the calendar, maybe with a time of that day.
#pragma once

#include <string_view>

namespace metro {

// Whether `text` is "YYYY-MM-DD" or "YYYY-MM-DD hh:mm:ss", of a day that exists, with a year from 1000 on.
bool is_date(std::string_view text);

}  // namespace metro
