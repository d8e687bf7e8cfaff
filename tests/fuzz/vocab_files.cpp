// vocab.json, merges.txt, tokenizer_config.json and added_tokens.json, in this order with NUL bytes between them.
#include "fuzz/fuzz_target.hpp"
#include "tokenizer/tokenizer.hpp"

#include <map>

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  std::map<std::string, std::string> files;
  std::string_view rest = as_text(data, size);
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json"}) {
    const std::size_t end = rest.find('\0');
    files[name] = rest.substr(0, end);
    if (end == rest.npos) {
      break;
    }
    rest.remove_prefix(end + 1);
  }
  expect_error_at_most([&] {
    const auto tokenizer = Tokenizer::load([&](const std::string& name) {
      const auto found = files.find(name);
      return found == files.end() ? std::nullopt : std::optional(found->second);
    });
    if (tokenizer != nullptr) {
      tokenizer->decode(tokenizer->encode("Hello, w\xc3\xb6rld!  1234's \n <|end|>"), true);
    }
  });
  return 0;
}
