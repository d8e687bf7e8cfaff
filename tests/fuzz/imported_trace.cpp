// Published routing records: the first byte chooses the kind, the rest is the JSON file, or index.tsv up to a NUL byte
// and the experts behind it.
#include "fuzz/fuzz_target.hpp"
#include "trace/importers.hpp"

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto kinds = trace_kinds();
  const std::string_view kind = kinds[data[0] % kinds.size()].name;
  const std::string_view input = as_text(data, size).substr(1);
  const std::size_t end = input.find('\0');
  const std::string_view experts = end == input.npos ? "" : input.substr(end + 1);
  const std::string json = scratch().file("counts.json");
  put_file(json, input);
  put_file(scratch().file("index.tsv"), input.substr(0, end));
  put_file(scratch().file("experts.u8"), experts);
  put_file(scratch().file("law.experts.u8"), experts);
  const std::string source = kind.ends_with("-counts") ? json : scratch().path().string();
  expect_error_at_most([&] { import_trace(kind, source, {.num_tokens = 64}); });
  expect_error_at_most([&] { import_loads(kind, source); });
  return 0;
}
