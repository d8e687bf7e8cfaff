// Input lines, through the reader that a run uses. A bad line is a rejection and ends nothing.
#include "base/file.hpp"
#include "fuzz/fuzz_target.hpp"
#include "requests/request_reader.hpp"

#include <memory>
#include <variant>

namespace metro::fuzz {

namespace {

std::unique_ptr<Tokenizer> small_tokenizer() {
  return Tokenizer::load([](const std::string& name) -> std::optional<std::string> {
    if (name != "tokenizer.json") {
      return std::nullopt;
    }
    return read_file(std::string(METRO_SOURCE_DIR) + "/tests/data/tokenizers/llama3/tokenizer.json",
                     ExitCode::checkpoint);
  });
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizer = small_tokenizer();
  static const std::string path = scratch().file("requests.jsonl");
  put_file(path, as_text(data, size));
  const RequestDefaults defaults{.max_tokens = 16, .max_context = 4096, .vocab_size = 300, .model = "small"};
  expect_error_at_most([&] {
    RequestReader reader(path, defaults, tokenizer.get());
    while (true) {
      const ReadItem item = reader.next();
      if (std::holds_alternative<std::monostate>(item)) {
        return;
      }
      if (const auto* rejection = std::get_if<Rejection>(&item)) {
        if (rejection->message.empty() || rejection->message.size() > 400) {
          throw std::logic_error("a rejection of " + std::to_string(rejection->message.size()) + " bytes");
        }
      }
    }
  });
  return 0;
}

}  // namespace metro::fuzz
