// Traces of arrival times, CSV or JSON lines, plain or compressed.
#include "fuzz/fuzz_target.hpp"
#include "requests/arrival_trace.hpp"

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const std::string path = scratch().file("arrivals");
  put_file(path, as_text(data, size));
  expect_error_at_most([] {
    ArrivalTrace trace(path);
    while (trace.next_s()) {
    };
  });
  return 0;
}
