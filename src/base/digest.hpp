// 64-bit digests (XXH3) of bytes: checkpoint tensors, agreement between ranks, message headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

using Digest = std::uint64_t;

Digest digest_of(std::span<const std::byte> bytes);
Digest digest_of(std::string_view text);

// Digest of the bytes of an array of plain values.
template <class T>
Digest digest_of_values(std::span<const T> values) {
  return digest_of(std::as_bytes(values));
}

// 16 lower-case hexadecimal digits.
std::string to_hex(Digest digest);

// Streaming form: the digest of all bytes given to update() so far, in order.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(const DigestStream&) = delete;
  DigestStream& operator=(const DigestStream&) = delete;

  void update(std::span<const std::byte> bytes);
  Digest digest() const;

 private:
  void* state_;
};

}  // namespace metro
