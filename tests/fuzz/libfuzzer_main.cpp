// The entry that libFuzzer calls. An exception that leaves a target ends the process, which libFuzzer reports.
#include "fuzz/fuzz_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return metro::fuzz::fuzz_one(data, size);
}
