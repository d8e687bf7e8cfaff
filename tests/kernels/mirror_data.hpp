// Arrays for tests that keep the memory of the host and that of kernels apart.
#pragma once

#include "kernels/mirror.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace metro::test {

// What kernels launched from now on see.
template <class T>
Mirror<T> mirror_of(const std::vector<T>& values) {
  Mirror<T> mirror("values", static_cast<std::int64_t>(values.size()));
  std::copy(values.begin(), values.end(), mirror.host());
  mirror.to_kernels(mirror.size());
  return mirror;
}

// What kernels launched so far leave.
template <class T>
std::vector<T> values_of(const Mirror<T>& mirror) {
  mirror.to_host(mirror.size());
  wait_for_kernels();
  return {mirror.host(), mirror.host() + mirror.size()};
}

}  // namespace metro::test
