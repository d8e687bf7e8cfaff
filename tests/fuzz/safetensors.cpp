// model.safetensors: the header, and the first and last byte of each tensor.
#include "checkpoint/safetensors.hpp"
#include "fuzz/fuzz_target.hpp"

#include <array>

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  put_file(scratch().file("model.safetensors"), as_text(data, size));
  expect_error_at_most([] {
    const SafetensorsFolder folder(scratch().path().string());
    std::array<std::byte, 1> byte{};
    for (const auto& [name, entry] : folder.tensors()) {
      if (entry.num_bytes > 0) {
        folder.read(entry, 0, byte);
        folder.read(entry, entry.num_bytes - 1, byte);
      }
    }
  });
  return 0;
}
