// Exchanges whose result is known, over any transport: every byte must be where it belongs, and bytes_sent() right.
#pragma once

#include "transport/messages.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace metro::test {

inline std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// All-gather of messages with length(rank) bytes; messages go to everybody, so `to` is 0 in their bytes.
inline void check_all_gather(Transport& transport, const std::function<std::int64_t(std::int64_t)>& length) {
  Messages own;
  own.append(transport.rank(), 0, length(transport.rank()));
  Messages expected;
  for (std::int64_t r = 0; r < transport.size(); ++r) {
    expected.append(r, 0, length(r));
  }
  std::vector<std::byte> received(expected.data.size());
  const std::int64_t sent_before = transport.bytes_sent();

  transport.all_gather(own.data, received, expected.bytes);

  CHECK(received == expected.data);
  CHECK(transport.bytes_sent() - sent_before == own.bytes[0] * (transport.size() - 1));
}

inline void check_all_to_all(Transport& transport, const MessageLength& length) {
  const Messages sent = messages_from(transport.rank(), transport.size(), length);
  const Messages expected = messages_to(transport.rank(), transport.size(), length);
  std::vector<std::byte> received(expected.data.size());
  const std::int64_t sent_before = transport.bytes_sent();

  transport.all_to_all(sent.data, sent.bytes, received, expected.bytes);

  CHECK(received == expected.data);
  const std::int64_t to_itself = sent.bytes[static_cast<std::size_t>(transport.rank())];
  CHECK(transport.bytes_sent() - sent_before == sum(sent.bytes) - to_itself);
}

}  // namespace metro::test
