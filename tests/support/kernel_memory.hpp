// Values in the memory of kernels, as a test makes and reads them.
#pragma once

#include "kernels/buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metro::test {

// `values` where kernels read them.
template <class T>
Buffer<T> kernel_copy(const std::vector<T>& values) {
  Buffer<T> copy("values", static_cast<std::int64_t>(values.size()));
  copy_from_host(copy.data(), std::span<const T>(values));
  return copy;
}

// num values of kernels, after all that was enqueued.
template <class T>
std::vector<T> host_copy(const T* values, std::int64_t num) {
  std::vector<T> copy(static_cast<std::size_t>(num));
  copy_to_host(std::span<T>(copy), values);
  return copy;
}

}  // namespace metro::test
