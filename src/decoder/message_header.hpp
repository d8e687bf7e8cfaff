// What stands before every message between ranks about one MoE layer: receivers compare it with what they expect, so
// that ranks which routed differently stop instead of computing something wrong.
#pragma once

#include "base/digest.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>

namespace metro {

struct MessageHeader {
  Digest digest = 0;       // of the routing of this layer and step
  std::int64_t count = 0;  // rows or assignments that follow
};
static_assert(sizeof(MessageHeader) == 16);

// A header among floats.
inline constexpr std::int64_t header_floats = sizeof(MessageHeader) / sizeof(float);

void write_header(const MessageHeader& header, void* message);

// Error(internal): `rank` expected something else of `sender`.
[[noreturn]] void throw_disagreement(std::int64_t rank, std::int64_t sender, std::int64_t moe_layer,
                                     const MessageHeader& expected, const MessageHeader& header);

// Throws Error(internal) that names the layer and both ranks unless the message of rank `sender` begins with
// `expected`.
void require_header(const void* message, const MessageHeader& expected, std::int64_t moe_layer, std::int64_t sender,
                    const Transport& transport);

}  // namespace metro
