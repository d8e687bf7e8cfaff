// model.safetensors.index.json, beside two shards with a tensor each: "a" in one, "b" in two.
#include "checkpoint/safetensors.hpp"
#include "fuzz/fuzz_target.hpp"

#include <fmt/format.h>

namespace metro::fuzz {

namespace {

std::string shard_with(const std::string& tensor) {
  const std::string header = fmt::format(R"({{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})", tensor);
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + "x";
}

bool put_shards() {
  put_file(scratch().file("one"), shard_with("a"));
  put_file(scratch().file("two"), shard_with("b"));
  return true;
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const bool has_shards = put_shards();
  static_cast<void>(has_shards);
  put_file(scratch().file("model.safetensors.index.json"), as_text(data, size));
  expect_error_at_most([] { const SafetensorsFolder folder(scratch().path().string()); });
  return 0;
}

}  // namespace metro::fuzz
