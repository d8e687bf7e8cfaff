// Reads request lines from text, with small limits and without a tokenizer.
#pragma once

#include "base/file.hpp"
#include "requests/request_reader.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <string>
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
  std::vector<AcceptedLine> accepted;
  std::vector<Rejection> rejected;
  std::int64_t num_lines = 0;
};

inline ReadResult read_all(RequestReader& reader) {
  ReadResult result;
  while (true) {
    auto item = reader.next();
    if (std::holds_alternative<std::monostate>(item)) {
      result.num_lines = reader.num_lines();
      return result;
    }
    if (auto* accepted = std::get_if<AcceptedLine>(&item)) {
      result.accepted.push_back(std::move(*accepted));
    } else {
      result.rejected.push_back(std::get<Rejection>(std::move(item)));
    }
  }
}

inline ReadResult read_text(const std::string& content) {
  const ScratchFolder folder;
  write_file_atomically(folder.file("in.jsonl"), content);
  RequestReader reader(folder.file("in.jsonl"), small_defaults(), nullptr);
  return read_all(reader);
}

inline Rejection rejection_of(const std::string& line) {
  const ReadResult result = read_text(line + "\n");
  REQUIRE(result.accepted.empty());
  REQUIRE(result.rejected.size() == 1);
  return result.rejected.front();
}

inline std::string message_of(const std::string& line) {
  return rejection_of(line).message;
}

inline std::string prompt_of_length(int length) {
  std::string ids = "1";
  for (int i = 1; i < length; ++i) {
    ids += ",1";
  }
  return "[" + ids + "]";
}

}  // namespace metro::test
