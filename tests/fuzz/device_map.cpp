// Device maps of other serving systems (.npy).
#include "placement/device_map.hpp"
#include "fuzz/fuzz_target.hpp"

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const std::string path = scratch().file("map.npy");
  put_file(path, as_text(data, size));
  expect_error_at_most([] { read_device_map(path); });
  return 0;
}
