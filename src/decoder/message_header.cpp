#include "decoder/message_header.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <cstring>

namespace metro {

void write_header(const MessageHeader& header, void* message) {
  std::memcpy(message, &header, sizeof(header));
}

void throw_disagreement(std::int64_t rank, std::int64_t sender, std::int64_t moe_layer, const MessageHeader& expected,
                        const MessageHeader& header) {
  throw Error(
      ExitCode::internal,
      fmt::format("ranks {} and {} disagree about the routing of MoE layer {}: digest {} and {}, {} and {} rows", rank,
                  sender, moe_layer, to_hex(expected.digest), to_hex(header.digest), expected.count, header.count));
}

void require_header(const void* message, const MessageHeader& expected, std::int64_t moe_layer, std::int64_t sender,
                    const Transport& transport) {
  MessageHeader header;
  std::memcpy(&header, message, sizeof(header));
  if (header.digest != expected.digest || header.count != expected.count) {
    throw_disagreement(transport.rank(), sender, moe_layer, expected, header);
  }
}

}  // namespace metro
