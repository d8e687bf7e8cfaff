// Added tokens: texts that become one id before the pre-tokeniser and the merges see anything ("<|im_start|>").
#pragma once

#include "tokenizer/regex.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metro::text {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      // left out when decoding without special tokens
  bool normalized = false;   // found in the normalised text, else in the raw text
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
  bool single_word = false;  // only where no word character touches it
};

// Cuts added tokens out of a text: the leftmost match first, of several there the longest.
class AddedTokenMatcher {
 public:
  // All of `tokens` are searched for, by their content. Throws Error(checkpoint), message beginning with `origin`, when
  // two have the same content.
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::string& origin);

  // A stretch of the text: that of an added token, or what lies between them (no id). Stretches between are not empty.
  using TakeStretch = std::function<void(std::string_view stretch, std::optional<std::int32_t> id)>;

  // Calls `take_stretch` for all stretches of `utf8` in order. A token that a discarded single_word match covers is
  // not looked for again, and one inside of the white space of an rstrip token is found: as the tokenizers library
  // does.
  void cut(std::string_view utf8, const TakeStretch& take_stretch) const;

 private:
  // A trie over bytes: what follows a node, ascending by byte; the token that ends there or -1.
  struct Node {
    std::vector<std::pair<char, std::int32_t>> children;
    std::int32_t token_idx = -1;
  };
  struct Match {
    std::size_t begin;
    std::size_t end;
    const AddedToken* token;
  };

  void insert(const AddedToken& token, std::int32_t token_idx, const std::string& origin);
  std::int32_t child_of(std::int32_t node_idx, char byte) const;
  std::optional<Match> find(std::string_view utf8, std::size_t from) const;
  bool touches_word(std::string_view utf8, const Match& match) const;
  bool is_word_character(std::string_view utf8, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> can_begin_{};  // by first byte
  std::optional<Regex> word_character_;
};

}  // namespace metro::text
