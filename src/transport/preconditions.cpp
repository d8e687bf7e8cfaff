#include "transport/preconditions.hpp"

#include "base/error.hpp"

#include <string>

namespace metro {

namespace {

// Throws Bug unless there is one message per rank and together they fill the buffer.
void require_messages(const Transport& transport, std::size_t buffer_bytes, std::span<const std::int64_t> bytes) {
  METRO_REQUIRE(std::ssize(bytes) == transport.size(),
                std::to_string(bytes.size()) + " sizes for " + std::to_string(transport.size()) + " ranks");
  std::int64_t total = 0;
  for (const std::int64_t one : bytes) {
    METRO_REQUIRE(one >= 0, std::to_string(one));
    total += one;
  }
  METRO_REQUIRE(total == static_cast<std::int64_t>(buffer_bytes),
                std::to_string(total) + " bytes in a buffer of " + std::to_string(buffer_bytes));
}

}  // namespace

void require_all_gather_sizes(const Transport& transport, std::span<const std::byte> send, std::span<std::byte> recv,
                              std::span<const std::int64_t> recv_bytes) {
  require_messages(transport, recv.size(), recv_bytes);
  const std::int64_t own_bytes = recv_bytes[static_cast<std::size_t>(transport.rank())];
  METRO_REQUIRE(std::ssize(send) == own_bytes,
                std::to_string(send.size()) + " bytes to send, " + std::to_string(own_bytes) + " to receive");
}

void require_all_to_all_sizes(const Transport& transport, std::span<const std::byte> send,
                              std::span<const std::int64_t> send_bytes, std::span<std::byte> recv,
                              std::span<const std::int64_t> recv_bytes) {
  require_messages(transport, send.size(), send_bytes);
  require_messages(transport, recv.size(), recv_bytes);
  const auto rank = static_cast<std::size_t>(transport.rank());
  METRO_REQUIRE(send_bytes[rank] == recv_bytes[rank],
                std::to_string(send_bytes[rank]) + " and " + std::to_string(recv_bytes[rank]) + " bytes to itself");
}

void require_exchange_sizes(const Transport& transport, std::span<const std::span<const std::byte>> to_ranks,
                            std::span<const std::span<std::byte>> from_ranks) {
  METRO_REQUIRE(std::ssize(to_ranks) == transport.size() && std::ssize(from_ranks) == transport.size(),
                std::to_string(to_ranks.size()) + " and " + std::to_string(from_ranks.size()) + " messages for " +
                    std::to_string(transport.size()) + " ranks");
}

void require_rank(const Transport& transport, std::int64_t rank) {
  METRO_REQUIRE(rank >= 0 && rank < transport.size(), std::to_string(rank));
}

}  // namespace metro
