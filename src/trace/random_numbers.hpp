// Random numbers that are the same on every platform, unlike those of std::uniform_int_distribution and std::shuffle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace metro {

class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed) : engine_(seed) {}

  // Uniform in 0 .. bound - 1; bound >= 1.
  std::uint64_t below(std::uint64_t bound) {
    // The last, incomplete stretch of `bound` numbers is thrown away.
    const std::uint64_t rest = (std::numeric_limits<std::uint64_t>::max() % bound + 1) % bound;
    std::uint64_t number = engine_();
    while (number > std::numeric_limits<std::uint64_t>::max() - rest) {
      number = engine_();
    }
    return number % bound;
  }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t left = values.size(); left > 1; --left) {
      std::swap(values[left - 1], values[static_cast<std::size_t>(below(left))]);
    }
  }

 private:
  std::mt19937_64 engine_;  // its numbers are fixed by the C++ standard
};

}  // namespace metro
