// What every fuzz target shares. A target reads bytes from a stranger with one parser of the program; the parser must
// accept them or throw metro::Error. Anything else is a finding: a crash, a report of
// a sanitizer, a Bug, an exception of a library, memory or time out of proportion.
#pragma once

#include "base/error.hpp"
#include "support/scratch_folder.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

namespace metro::fuzz {

// The target: defined once in each executable. Returns 0.
int fuzz_one(const std::uint8_t* data, std::size_t size);

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs `parse`; an Error is as good as success.
template <class Parse>
void expect_error_at_most(const Parse& parse) {
  try {
    parse();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    if (message.empty()) {
      throw std::logic_error("an Error without a message");
    }
  }
}

// Puts `content` into `path`.
inline void put_file(const std::string& path, std::string_view content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(content.data(), 1, content.size(), file) != content.size() ||
      std::fclose(file) != 0) {
    throw std::runtime_error("cannot write " + path);
  }
}

// A folder that lives as long as the process.
inline const test::ScratchFolder& scratch() {
  static const test::ScratchFolder folder;
  return folder;
}

}  // namespace metro::fuzz
