// Byte pair encoding of one word: from its bytes or characters, the pair of neighbours with the earliest merge rule is
// joined (of equal ones the leftmost), until no rule applies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace metro::text {

// SentencePiece's spelling of a space.
constexpr std::string_view space_mark = "\u2581";

using TokenIds = std::unordered_map<std::string, std::int32_t>;  // token as the file spells it -> id

struct BpeRules {
  TokenIds vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // earliest first
  bool ignore_merges = false;  // a word that is a token becomes that token, whatever the merges say
  // Else merging begins with bytes, in the spelling of byte_level.hpp. With byte_fallback it begins with characters,
  // spelled as they are; one without a token of its own becomes the tokens "<0x00>".."<0xFF>" of its bytes.
  bool byte_fallback = false;
};

class BytePairEncoder {
 public:
  // Throws Error(checkpoint), message beginning with `origin`, if a byte (without byte_fallback: one that occurs in
  // UTF-8) has no token or a merge refers to a token that does not exist.
  BytePairEncoder(const BpeRules& rules, const std::string& origin);

  // Appends the ids of `word` (bytes of valid UTF-8). Time is O(n log n) in the length of the word.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  // (left id, right id) -> rank of the merge. Open addressing: a lookup is most of the time one cache line.
  class MergeTable {
   public:
    static constexpr std::uint32_t no_rank = 0xFFFFFFFF;
    void reserve(std::size_t num_merges);
    void insert(std::int32_t left, std::int32_t right, std::uint32_t rank);
    std::uint32_t rank(std::int32_t left, std::int32_t right) const;

   private:
    struct Slot {
      std::uint64_t pair;
      std::uint32_t rank;
    };
    std::size_t first_slot(std::uint64_t pair) const;
    std::vector<Slot> slots_;
    int shift_ = 0;
  };
  struct HashOfText {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  void take_bytes(const BpeRules& rules, const std::string& origin);
  void take_characters(const BpeRules& rules);
  void take_merges(const BpeRules& rules, const std::string& origin);
  void encode_characters(std::string_view word, std::vector<std::int32_t>& ids) const;
  void append_characters(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge(std::vector<std::int32_t>& ids, std::size_t begin) const;
  std::uint32_t rank_at(const std::vector<std::int32_t>& ids, std::size_t at) const;
  void merge_short(std::vector<std::int32_t>& ids, std::size_t begin) const;
  void merge_long(std::vector<std::int32_t>& ids, std::size_t begin) const;

  bool byte_fallback_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::unordered_map<char32_t, std::int32_t> character_ids_;  // with byte_fallback
  bool marks_begin_tokens_ = false;  // no merge makes a token with a mark of a space behind another character
  MergeTable merges_;
  std::vector<std::int32_t> rank_to_id_;                                                    // what a merge makes
  std::unordered_map<std::string, std::int32_t, HashOfText, std::equal_to<>> whole_words_;  // with ignore_merges
};

}  // namespace metro::text
