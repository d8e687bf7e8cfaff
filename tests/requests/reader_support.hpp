// What tests of the reader share: small limits and everything that a reader gives.
#pragma once

#include "requests/request_reader.hpp"

#include <utility>
#include <vector>

namespace metro::test {

inline RequestDefaults small_defaults() {
  RequestDefaults defaults;
  defaults.max_tokens = 16;
  defaults.max_context = 32;
  defaults.vocab_size = 100;
  defaults.model = "checkpoint-name";
  return defaults;
}

struct ReadResult {
  std::vector<AcceptedRequest> accepted;
  std::vector<Rejection> rejected;
};

inline ReadResult read_all(RequestReader& reader) {
  ReadResult result;
  while (true) {
    ReadItem item = reader.next();
    if (std::holds_alternative<std::monostate>(item)) {
      return result;
    }
    if (auto* accepted = std::get_if<AcceptedRequest>(&item)) {
      result.accepted.push_back(std::move(*accepted));
    } else {
      result.rejected.push_back(std::get<Rejection>(std::move(item)));
    }
  }
}

}  // namespace metro::test
