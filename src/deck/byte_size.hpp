// Sizes in bytes as people write them: "512 MiB", "2 GiB", "1 GB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace metro {

// A whole number and, optionally, one of B, KiB, MiB, GiB, TiB (powers of 1024), kB, KB, MB, GB, TB (powers of 1000).
// Nothing if `text` is not that or does not fit 63 bits.
std::optional<std::int64_t> parse_byte_size(std::string_view text);

// The units that parse_byte_size knows, for messages.
std::string byte_units();

// Exact: the number with the largest power of 1024 that divides it ("256 MiB", "1000 B"). bytes >= 0.
std::string exact_byte_size(std::int64_t bytes);

// Rounded to three or four digits, for people: "1.46 GiB". bytes >= 0.
std::string rounded_byte_size(std::int64_t bytes);

}  // namespace metro
