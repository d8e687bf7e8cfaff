// tokenizer.model, with no other file; a tokenizer that loads must encode and decode.
#include "fuzz/fuzz_target.hpp"
#include "tokenizer/tokenizer.hpp"

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  const std::string content(as_text(data, size));
  expect_error_at_most([&] {
    const auto tokenizer = Tokenizer::load(
        [&](const std::string& name) { return name == "tokenizer.model" ? std::optional(content) : std::nullopt; });
    const auto ids = tokenizer->encode_prompt("Hello, w\xc3\xb6rld!  1234's \n\n <s></s> \xe4\xb8\x96\xf0\x9f\x98\x80");
    tokenizer->decode(ids, true);
    tokenizer->decode(ids, false);
  });
  return 0;
}
