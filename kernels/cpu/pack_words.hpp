// The fast way to pack 16-bit words where the CPU has AVX-512 (BW): every line of the source is read once, every line
// of the result written once. The same bytes as the portable way in packed_matrix.cpp.
#pragma once

#include <cstdint>

namespace metro::cpu {

// Packs the first reduction steps of one panel of panel_columns rows, each `in` words long, and returns how many: all
// whole 32, or none where this way cannot be taken.
std::int64_t pack_words(const std::uint16_t* source, std::int64_t in, std::uint16_t* destination);

}  // namespace metro::cpu
