// What a run that goes on knows of the lines of its input that it has read before.
#pragma once

#include "requests/request.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace metro {

class EarlierLines {
 public:
  // Of a line that was added twice, the first holds; a finished one stays finished. line.number >= 1.
  void add(const InputLine& line, bool is_finished);

  std::int64_t last() const { return static_cast<std::int64_t>(digests_.size()); }  // number of the last known line
  bool is_finished(std::int64_t number) const;
  // Nothing for a line that is not known: it was read, but not begun.
  std::optional<Digest> digest_of(std::int64_t number) const;

 private:
  enum class Kind : std::uint8_t { unknown, begun, finished };

  std::vector<Digest> digests_;  // of line i + 1
  std::vector<Kind> kinds_;      // likewise
};

}  // namespace metro
