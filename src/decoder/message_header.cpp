#include "decoder/message_header.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernels/linear.hpp"

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

MessageHeaders::MessageHeaders(const std::string& label, std::int64_t num_ranks)
    : num_ranks_(num_ranks),
      sent_(fmt::format("headers of {} to send", label), num_ranks),
      received_(fmt::format("headers of {} received", label), num_ranks),
      sent_offsets_(fmt::format("places of headers of {} to send", label), num_ranks),
      received_offsets_(fmt::format("places of headers of {} received", label), num_ranks),
      expected_(at(num_ranks)) {}

std::int64_t MessageHeaders::num_bytes() const {
  return sent_.num_bytes() + received_.num_bytes() + sent_offsets_.num_bytes() + received_offsets_.num_bytes();
}

std::int64_t MessageHeaders::planned_bytes(std::int64_t num_ranks) {
  return 2 * num_ranks * static_cast<std::int64_t>(sizeof(MessageHeader) + sizeof(std::int64_t));
}

void MessageHeaders::set_sent(std::int64_t rank, const MessageHeader& header, std::int64_t offset) {
  sent_[rank] = header;
  sent_offsets_[rank] = offset;
}

void MessageHeaders::set_expected(std::int64_t rank, const MessageHeader& header, std::int64_t offset) {
  expected_[at(rank)] = header;
  received_offsets_[rank] = offset;
}

void MessageHeaders::write(float* messages) const {
  sent_.to_kernels(num_ranks_);
  sent_offsets_.to_kernels(num_ranks_);
  copy_rows(sent_.kernels(), {.stride = header_floats}, messages, {.offsets = sent_offsets_.kernels()}, num_ranks_,
            header_floats);
}

void MessageHeaders::require(const float* messages, std::int64_t moe_layer, const Transport& transport) const {
  received_offsets_.to_kernels(num_ranks_);
  copy_rows(messages, {.offsets = received_offsets_.kernels()}, received_.kernels(), {.stride = header_floats},
            num_ranks_, header_floats);
  received_.to_host(num_ranks_);
  wait_for_kernels();
  for (std::int64_t rank = 0; rank < num_ranks_; ++rank) {
    require_header(&received_[rank], expected_[at(rank)], moe_layer, rank, transport);
  }
}

}  // namespace metro
