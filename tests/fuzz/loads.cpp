// Loads for placement (JSON).
#include "placement/loads.hpp"
#include "fuzz/fuzz_target.hpp"

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const std::string path = scratch().file("loads.json");
  put_file(path, as_text(data, size));
  expect_error_at_most([] { read_loads(path); });
  return 0;
}
