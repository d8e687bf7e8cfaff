// A hash of 64 bits for choices that shall look random and be the same everywhere.
#pragma once

#include <cstdint>

namespace metro {

// Every bit of the result depends on every bit of `value` (the finaliser of splitmix64).
constexpr std::uint64_t mixed_bits(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

// A number below `count` (at most 2^32), each about equally often: the upper half of hash * count.
constexpr std::uint64_t below(std::uint64_t count, std::uint64_t hash) {
  return ((hash >> 32) * count) >> 32;
}

}  // namespace metro
