// config.json, and generation_config.json behind the first NUL byte.
#include "fuzz/fuzz_target.hpp"
#include "model/family.hpp"

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = as_text(data, size);
  const std::size_t end = input.find('\0');
  std::optional<std::string_view> generation;
  if (end != input.npos) {
    generation = input.substr(end + 1);
  }
  expect_error_at_most([&] { tensor_sources(parse_model_spec(input.substr(0, end), generation)); });
  return 0;
}
