// Placement files (JSON).
#include "placement/placement.hpp"
#include "fuzz/fuzz_target.hpp"

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const std::string path = scratch().file("placement.json");
  put_file(path, as_text(data, size));
  expect_error_at_most([] { read_placement(path); });
  return 0;
}
