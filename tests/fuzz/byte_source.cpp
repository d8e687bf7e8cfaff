// Lines of files that may be compressed with gzip or zstd.
#include "fuzz/fuzz_target.hpp"
#include "requests/line_reader.hpp"

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const std::string path = scratch().file("input");
  put_file(path, as_text(data, size));
  expect_error_at_most([] {
    constexpr std::int64_t max_line_bytes = 1 << 16;
    LineReader lines(path, max_line_bytes);
    std::string line;
    // Compressed input may stand for any number of lines: enough of them are read when a bomb would show.
    constexpr std::int64_t most_lines = 100'000;
    while (lines.num_lines() < most_lines && lines.next(line) != LineReader::Outcome::end) {
    };
  });
  return 0;
}
