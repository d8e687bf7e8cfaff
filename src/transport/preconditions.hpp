// What every transport requires of the sizes it is given; a violation is a Bug.
#pragma once

#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace metro {

void require_all_gather_sizes(const Transport& transport, std::span<const std::byte> send, std::span<std::byte> recv,
                              std::span<const std::int64_t> recv_bytes);

void require_all_to_all_sizes(const Transport& transport, std::span<const std::byte> send,
                              std::span<const std::int64_t> send_bytes, std::span<std::byte> recv,
                              std::span<const std::int64_t> recv_bytes);

void require_exchange_sizes(const Transport& transport, std::span<const std::span<const std::byte>> to_ranks,
                            std::span<const std::span<std::byte>> from_ranks);

void require_rank(const Transport& transport, std::int64_t rank);

}  // namespace metro
