#include "requests/earlier_lines.hpp"

#include "base/error.hpp"

#include <string>

namespace metro {

void EarlierLines::add(const InputLine& line, bool is_finished) {
  METRO_REQUIRE(line.number >= 1, std::to_string(line.number));
  if (line.number > last()) {
    digests_.resize(static_cast<std::size_t>(line.number));
    kinds_.resize(static_cast<std::size_t>(line.number), Kind::unknown);
  }
  const auto at = static_cast<std::size_t>(line.number - 1);
  if (kinds_[at] == Kind::unknown) {
    digests_[at] = line.digest;
  }
  if (kinds_[at] != Kind::finished) {
    kinds_[at] = is_finished ? Kind::finished : Kind::begun;
  }
}

bool EarlierLines::is_finished(std::int64_t number) const {
  return number >= 1 && number <= last() && kinds_[static_cast<std::size_t>(number - 1)] == Kind::finished;
}

std::optional<Digest> EarlierLines::digest_of(std::int64_t number) const {
  if (number < 1 || number > last() || kinds_[static_cast<std::size_t>(number - 1)] == Kind::unknown) {
    return std::nullopt;
  }
  return digests_[static_cast<std::size_t>(number - 1)];
}

}  // namespace metro
