// The tokenizer of the embedded model.
#pragma once

#include "base/file.hpp"
#include "tokenizer/tokenizer.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace metro::test {

inline std::unique_ptr<Tokenizer> tiny_tokenizer() {
  return Tokenizer::load([](const std::string& name) -> std::optional<std::string> {
    const std::string path = METRO_SOURCE_DIR "/inputs/models/tiny/" + name;
    if (!std::filesystem::exists(path)) {
      return std::nullopt;
    }
    return read_file(path, ExitCode::checkpoint);
  });
}

}  // namespace metro::test
