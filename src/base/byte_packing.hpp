// Plain values, lists and texts as bytes and back, in the machine's own byte order: for messages between ranks of one
// build and for files that the same machine reads again. Every length is checked before memory is taken for it.
#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace metro {

// Bytes that are not what a ByteReader was asked for.
class MalformedBytes : public Bug {
 public:
  using Bug::Bug;
};

class ByteWriter {
 public:
  template <class T>
  void value(const T& one) {
    raw(std::span<const T>(&one, 1));
  }
  // The number of values, then the values.
  template <class T>
  void values(std::span<const T> many) {
    value(static_cast<std::int64_t>(many.size()));
    raw(many);
  }
  void text(std::string_view characters) { values(std::span<const char>(characters)); }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <class T>
  void raw(std::span<const T> many) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t old_size = bytes_.size();
    bytes_.resize(old_size + many.size_bytes());
    if (!many.empty()) {
      std::memcpy(bytes_.data() + old_size, many.data(), many.size_bytes());
    }
  }

  std::vector<std::byte> bytes_;
};

// All but at_end() throw MalformedBytes when fewer bytes are left.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T value() {
    T one{};
    raw(std::span<T>(&one, 1));
    return one;
  }
  template <class T, class Container = std::vector<T>>
  Container values(const char* what) {
    Container many(static_cast<std::size_t>(count(sizeof(T), what)), T());
    raw(std::span<T>(many));
    return many;
  }
  std::string text(const char* what) { return values<char, std::string>(what); }

  // How many things follow that take at least item_bytes each.
  std::int64_t count(std::size_t item_bytes, const char* what) {
    const auto number = value<std::int64_t>();
    if (number < 0 || number > static_cast<std::int64_t>(bytes_.size() / item_bytes)) {
      throw MalformedBytes(std::to_string(number) + " " + what);
    }
    return number;
  }

  std::size_t num_left() const { return bytes_.size(); }
  bool at_end() const { return bytes_.empty(); }

 private:
  template <class T>
  void raw(std::span<T> many) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes_.size() < many.size_bytes()) {
      throw MalformedBytes(std::to_string(bytes_.size()) + " bytes left, " + std::to_string(many.size_bytes()) +
                           " wanted");
    }
    if (!many.empty()) {
      std::memcpy(many.data(), bytes_.data(), many.size_bytes());
    }
    bytes_ = bytes_.subspan(many.size_bytes());
  }

  std::span<const std::byte> bytes_;
};

}  // namespace metro
