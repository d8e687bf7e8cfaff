// Exchanges whose result is known, over any transport and of memory of kernels: every byte must be where it belongs,
// and bytes_sent() right.
#pragma once

#include "kernels/buffer.hpp"
#include "kernels/queue.hpp"
#include "transport/device_exchange.hpp"
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

// Memory of kernels with `data` in it.
inline Buffer<std::byte> buffer_of(const std::vector<std::byte>& data) {
  Buffer<std::byte> buffer("test data", std::ssize(data));
  copy_from_host(buffer.data(), std::span<const std::byte>(data));
  return buffer;
}

inline std::span<std::byte> all_of(const Buffer<std::byte>& buffer) {
  return {buffer.data(), static_cast<std::size_t>(buffer.size())};
}

// Waits for what was enqueued before.
inline std::vector<std::byte> bytes_of(const Buffer<std::byte>& buffer) {
  wait_for_kernels();
  std::vector<std::byte> data(static_cast<std::size_t>(buffer.size()));
  copy_to_host(std::span<std::byte>(data), static_cast<const std::byte*>(buffer.data()));
  return data;
}

inline void check_all_gather(DeviceExchange& exchange, const std::function<std::int64_t(std::int64_t)>& length) {
  Messages own;
  own.append(exchange.rank(), 0, length(exchange.rank()));
  Messages expected;
  for (std::int64_t r = 0; r < exchange.size(); ++r) {
    expected.append(r, 0, length(r));
  }
  const Buffer<std::byte> sent = buffer_of(own.data);
  const Buffer<std::byte> received("test data received", std::ssize(expected.data));
  const std::int64_t sent_before = exchange.transport().bytes_sent();

  exchange.all_gather(all_of(sent), all_of(received), expected.bytes);

  CHECK(bytes_of(received) == expected.data);
  CHECK(exchange.transport().bytes_sent() - sent_before == own.bytes[0] * (exchange.size() - 1));
}

inline void check_all_to_all(DeviceExchange& exchange, const MessageLength& length) {
  const Messages own = messages_from(exchange.rank(), exchange.size(), length);
  const Messages expected = messages_to(exchange.rank(), exchange.size(), length);
  const Buffer<std::byte> sent = buffer_of(own.data);
  const Buffer<std::byte> received("test data received", std::ssize(expected.data));
  const std::int64_t sent_before = exchange.transport().bytes_sent();

  exchange.all_to_all(all_of(sent), own.bytes, all_of(received), expected.bytes);

  CHECK(bytes_of(received) == expected.data);
  const std::int64_t to_itself = own.bytes[static_cast<std::size_t>(exchange.rank())];
  CHECK(exchange.transport().bytes_sent() - sent_before == sum(own.bytes) - to_itself);
}

}  // namespace metro::test
