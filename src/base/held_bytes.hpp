// How much memory containers hold, for objects that say what they hold themselves.
#pragma once

#include <cstdint>
#include <vector>

namespace metro {

// Of elements that hold nothing outside themselves. In bytes.
template <class T>
std::int64_t held_bytes(const std::vector<T>& values) {
  return static_cast<std::int64_t>(values.capacity() * sizeof(T));
}

// Of several of them together.
template <class... Ts>
std::int64_t held_bytes(const std::vector<Ts>&... values) requires(sizeof...(Ts) > 1) {
  return (held_bytes(values) + ...);
}

}  // namespace metro
