// Counts for metro bench route.
#include "bench/counts_file.hpp"
#include "fuzz/fuzz_target.hpp"

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const std::string path = scratch().file("counts.json");
  put_file(path, as_text(data, size));
  expect_error_at_most([] { read_counts(path); });
  return 0;
}
