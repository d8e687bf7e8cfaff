// From token to bytes, the last step on the way back to text.
#pragma once

#include "base/utf8.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace metro::text {

struct DecoderRules {
  bool byte_level = false;                                        // tokens spell bytes as in byte_level.hpp
  std::vector<std::pair<std::string, std::string>> replacements;  // in each token, one after the other
  bool byte_fallback = false;                                     // "<0x0A>" stands for that byte
  std::size_t num_leading_spaces = 0;                             // a text begins without so many of its spaces

  // The tokenizers library and SentencePiece replace single bytes of byte_fallback.
  Replaced replaced_unit() const { return byte_level ? Replaced::maximal_subpart : Replaced::byte; }
};

// What a token adds to decoded bytes. A byte-level token that is not spelled in the byte alphabet adds itself.
std::string decoded_bytes(const std::string& token, const DecoderRules& rules);

}  // namespace metro::text
