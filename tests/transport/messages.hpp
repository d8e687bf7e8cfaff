// Messages that say where they come from: byte i of the message from rank s to rank r is a function of (s, r, i), and
// its length one of (s, r), so that a byte in the wrong place shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace metro::test {

inline std::byte message_byte(std::int64_t from, std::int64_t to, std::int64_t i) {
  return static_cast<std::byte>((from * 101 + to * 31 + i * 7 + i / 256) & 0xff);
}

// Bytes of the message from one rank to another.
using MessageLength = std::function<std::int64_t(std::int64_t from, std::int64_t to)>;

struct Messages {
  std::vector<std::byte> data;
  std::vector<std::int64_t> bytes;  // [size]

  void append(std::int64_t from, std::int64_t to, std::int64_t length) {
    for (std::int64_t i = 0; i < length; ++i) {
      data.push_back(message_byte(from, to, i));
    }
    bytes.push_back(length);
  }
};

inline Messages messages_from(std::int64_t rank, std::int64_t size, const MessageLength& length) {
  Messages messages;
  for (std::int64_t to = 0; to < size; ++to) {
    messages.append(rank, to, length(rank, to));
  }
  return messages;
}

inline Messages messages_to(std::int64_t rank, std::int64_t size, const MessageLength& length) {
  Messages messages;
  for (std::int64_t from = 0; from < size; ++from) {
    messages.append(from, rank, length(from, rank));
  }
  return messages;
}

}  // namespace metro::test
