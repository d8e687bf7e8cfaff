// What stands before every message between ranks about one MoE layer: receivers compare it with what they expect, so
// that ranks which routed differently stop instead of computing something wrong.
#pragma once

#include "base/digest.hpp"
#include "kernels/mirror.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct MessageHeader {
  Digest digest = 0;       // of the routing of this layer and step
  std::int64_t count = 0;  // rows or assignments that follow
};
static_assert(sizeof(MessageHeader) == 16);

// A header among floats.
inline constexpr std::int64_t header_floats = sizeof(MessageHeader) / sizeof(float);

// For messages in the memory of the host.
void write_header(const MessageHeader& header, void* message);

// Error(internal): `rank` expected something else of `sender`.
[[noreturn]] void throw_disagreement(std::int64_t rank, std::int64_t sender, std::int64_t moe_layer,
                                     const MessageHeader& expected, const MessageHeader& header);

// Throws Error(internal) that names the layer and both ranks unless the message of rank `sender` begins with
// `expected`.
void require_header(const void* message, const MessageHeader& expected, std::int64_t moe_layer, std::int64_t sender,
                    const Transport& transport);

// The headers of one exchange between all ranks, whose messages lie in the memory of kernels: one to each rank and one
// from each. The host says what they are and where; kernels bring them there and back.
class MessageHeaders {
 public:
  MessageHeaders(const std::string& label, std::int64_t num_ranks);

  // The message to `rank` begins with `header`, offset floats from the first message; that from `rank` should.
  void set_sent(std::int64_t rank, const MessageHeader& header, std::int64_t offset);
  void set_expected(std::int64_t rank, const MessageHeader& header, std::int64_t offset);

  // Enqueues the writing of all headers to be sent into messages.
  void write(float* messages) const;

  // Waits for the kernels. Throws what require_header() throws.
  void require(const float* messages, std::int64_t moe_layer, const Transport& transport) const;

  std::int64_t num_bytes() const;
  static std::int64_t planned_bytes(std::int64_t num_ranks);

 private:
  std::int64_t num_ranks_;
  Mirror<MessageHeader> sent_, received_;                 // [num_ranks]
  Mirror<std::int64_t> sent_offsets_, received_offsets_;  // [num_ranks] of the messages, in floats
  std::vector<MessageHeader> expected_;                   // [num_ranks]
};

}  // namespace metro
