#include "tokenizer/byte_pair_encoder.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace metro::text {

namespace {

// Up to here scanning all pairs for the next merge is faster than keeping a heap.
constexpr std::size_t max_short_word = 48;

// A heap entry is one integer, rank above position, so that the smallest is the next merge.
constexpr int position_bits = 40;
constexpr std::uint64_t position_mask = (std::uint64_t{1} << position_bits) - 1;
constexpr std::size_t max_merges = std::size_t{1} << (64 - position_bits);

// Length of the marks that `text` begins with.
std::size_t end_of_marks(std::string_view text) {
  std::size_t end = 0;
  while (text.substr(end).starts_with(space_mark)) {
    end += space_mark.size();
  }
  return end;
}

bool has_marks_only_in_front(std::string_view token) {
  return token.find(space_mark, end_of_marks(token)) == token.npos;
}

constexpr std::uint64_t no_pair = ~std::uint64_t{0};

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

// C0, C1 and F5..FF occur nowhere in UTF-8; some vocabularies have no token for them.
bool occurs_in_utf8(int byte) {
  return byte < 0xC0 || (byte > 0xC1 && byte < 0xF5);
}

std::string fallback_spelling(int byte) {
  return fmt::format("<0x{:02X}>", byte);
}

}  // namespace

void BytePairEncoder::MergeTable::reserve(std::size_t num_merges) {
  const std::size_t num_slots = std::bit_ceil(std::max<std::size_t>(num_merges * 2, 16));
  slots_.assign(num_slots, {no_pair, no_rank});
  shift_ = 64 - std::countr_zero(num_slots);
}

std::size_t BytePairEncoder::MergeTable::first_slot(std::uint64_t pair) const {
  return static_cast<std::size_t>((pair ^ pair >> 29) * 0x9E3779B97F4A7C15U >> shift_);
}

void BytePairEncoder::MergeTable::insert(std::int32_t left, std::int32_t right, std::uint32_t rank) {
  const std::uint64_t pair = key_of(left, right);
  std::size_t slot = first_slot(pair);
  while (slots_[slot].pair != no_pair && slots_[slot].pair != pair) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  slots_[slot] = {pair, rank};
}

std::uint32_t BytePairEncoder::MergeTable::rank(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = key_of(left, right);
  std::size_t slot = first_slot(pair);
  while (slots_[slot].pair != pair) {
    if (slots_[slot].pair == no_pair) {
      return no_rank;
    }
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slots_[slot].rank;
}

BytePairEncoder::BytePairEncoder(const BpeRules& rules, const std::string& origin)
    : byte_fallback_(rules.byte_fallback) {
  take_bytes(rules, origin);
  if (byte_fallback_) {
    take_characters(rules);
  }
  take_merges(rules, origin);
  if (rules.ignore_merges) {
    for (const auto& [token, id] : rules.vocab) {
      if (auto word = byte_fallback_ ? std::optional(token) : bytes_of_spelling(token)) {
        whole_words_.emplace(*std::move(word), id);
      }
    }
  }
}

void BytePairEncoder::take_bytes(const BpeRules& rules, const std::string& origin) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling =
        byte_fallback_ ? fallback_spelling(byte) : spelling_of_byte(static_cast<std::uint8_t>(byte));
    const auto entry = rules.vocab.find(spelling);
    if (entry == rules.vocab.end() && (byte_fallback_ || occurs_in_utf8(byte))) {
      throw Error(ExitCode::checkpoint,
                  fmt::format("{}: vocab has no token \"{}\" for the byte {:#04x}; only {} that cover all text are "
                              "supported",
                              origin, spelling, byte,
                              byte_fallback_ ? "vocabularies with byte_fallback" : "byte-level vocabularies"));
    }
    byte_ids_[static_cast<std::size_t>(byte)] = entry == rules.vocab.end() ? -1 : entry->second;
  }
}

void BytePairEncoder::take_characters(const BpeRules& rules) {
  for (const auto& [token, id] : rules.vocab) {
    if (!token.empty() && sequence_at(token, 0).length == token.size()) {
      character_ids_.emplace(character_at(token, 0), id);
    }
  }
}

void BytePairEncoder::take_merges(const BpeRules& rules, const std::string& origin) {
  if (rules.merges.size() >= max_merges) {
    throw Error(ExitCode::checkpoint,
                fmt::format("{}: {} merges; the limit is {}", origin, rules.merges.size(), max_merges - 1));
  }
  marks_begin_tokens_ = true;
  merges_.reserve(rules.merges.size());
  rank_to_id_.reserve(rules.merges.size());
  for (std::size_t rank = 0; rank < rules.merges.size(); ++rank) {
    const std::string& left = rules.merges[rank].first;
    const std::string& right = rules.merges[rank].second;
    const auto id_of = [&](const std::string& token) {
      const auto entry = rules.vocab.find(token);
      if (entry == rules.vocab.end()) {
        throw Error(ExitCode::checkpoint,
                    fmt::format("{}: merge {} ({:?} {:?}) needs the token {:?}, which vocab does not have", origin,
                                rank + 1, left, right, token));
      }
      return entry->second;
    };
    // A pair that is listed twice counts where it comes last: so do the reference implementations.
    merges_.insert(id_of(left), id_of(right), static_cast<std::uint32_t>(rank));
    rank_to_id_.push_back(id_of(left + right));
    marks_begin_tokens_ = marks_begin_tokens_ && has_marks_only_in_front(left + right);
  }
}

void BytePairEncoder::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (!whole_words_.empty()) {
    const auto entry = whole_words_.find(word);
    if (entry != whole_words_.end()) {
      ids.push_back(entry->second);
      return;
    }
  }
  METRO_REQUIRE(word.size() <= position_mask, "a word longer than 2^40 bytes");
  if (byte_fallback_) {
    encode_characters(word, ids);
    return;
  }
  const std::size_t begin = ids.size();
  for (const char byte : word) {
    ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  }
  merge(ids, begin);
}

// Such tokenizers often have no pre-tokeniser: the word is a whole text. Where no merge can join what stands on both
// sides, it falls into short words, which take less time.
void BytePairEncoder::encode_characters(std::string_view word, std::vector<std::int32_t>& ids) const {
  while (!word.empty()) {
    const std::size_t end =
        marks_begin_tokens_ ? std::min(word.find(space_mark, end_of_marks(word)), word.size()) : word.size();
    const std::size_t begin = ids.size();
    append_characters(word.substr(0, end), ids);
    merge(ids, begin);
    word.remove_prefix(end);
  }
}

void BytePairEncoder::append_characters(std::string_view word, std::vector<std::int32_t>& ids) const {
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = sequence_at(word, at).length;
    const auto entry = character_ids_.find(character_at(word, at));
    if (entry != character_ids_.end()) {
      ids.push_back(entry->second);
    } else {
      for (const char byte : word.substr(at, length)) {
        ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
      }
    }
    at += length;
  }
}

// ids[begin..] are the symbols of the word.
void BytePairEncoder::merge(std::vector<std::int32_t>& ids, std::size_t begin) const {
  if (ids.size() - begin <= max_short_word) {
    merge_short(ids, begin);
  } else {
    merge_long(ids, begin);
  }
}

std::uint32_t BytePairEncoder::rank_at(const std::vector<std::int32_t>& ids, std::size_t at) const {
  return at + 1 < ids.size() ? merges_.rank(ids[at], ids[at + 1]) : MergeTable::no_rank;
}

// ranks[i] is the rank of the pair that begins at its symbol i.
void BytePairEncoder::merge_short(std::vector<std::int32_t>& ids, std::size_t begin) const {
  std::array<std::uint32_t, max_short_word> ranks;
  std::size_t length = ids.size() - begin;
  for (std::size_t i = 0; i < length; ++i) {
    ranks[i] = rank_at(ids, begin + i);
  }
  while (length > 1) {
    const auto lowest = std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(length));
    if (*lowest == MergeTable::no_rank) {
      return;
    }
    const auto at = static_cast<std::size_t>(lowest - ranks.begin());
    ids[begin + at] = rank_to_id_[*lowest];
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(begin + at + 1));
    std::copy(lowest + 2, ranks.begin() + static_cast<std::ptrdiff_t>(length), lowest + 1);
    --length;
    ranks[at] = rank_at(ids, begin + at);
    if (at > 0) {
      ranks[at - 1] = rank_at(ids, begin + at - 1);
    }
  }
}

// Symbols form a linked list; the heap holds (rank, position) of pairs, some of which are outdated when they come up.
void BytePairEncoder::merge_long(std::vector<std::int32_t>& ids, std::size_t begin) const {
  const std::size_t length = ids.size() - begin;
  std::int32_t* const symbols = ids.data() + begin;
  std::vector<std::size_t> next(length);
  std::vector<std::size_t> previous(length);
  std::vector<std::uint64_t> heap;
  heap.reserve(length);
  const auto push = [&](std::size_t left, std::size_t right) {
    const std::uint32_t rank = merges_.rank(symbols[left], symbols[right]);
    if (rank != MergeTable::no_rank) {
      heap.push_back(static_cast<std::uint64_t>(rank) << position_bits | left);
      return true;
    }
    return false;
  };
  const auto push_to_heap = [&](std::size_t left, std::size_t right) {
    if (push(left, right)) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  for (std::size_t at = 0; at < length; ++at) {
    next[at] = at + 1;
    previous[at] = at - 1;  // wraps at the first symbol, which has none
    if (at + 1 < length) {
      push(at, at + 1);
    }
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  constexpr std::int32_t merged_away = -1;
  while (!heap.empty()) {
    const auto rank = static_cast<std::uint32_t>(heap.front() >> position_bits);
    const auto left = static_cast<std::size_t>(heap.front() & position_mask);
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const std::size_t right = next[left];
    if (symbols[left] == merged_away || right == length || merges_.rank(symbols[left], symbols[right]) != rank) {
      continue;
    }
    symbols[left] = rank_to_id_[rank];
    symbols[right] = merged_away;
    next[left] = next[right];
    if (next[left] < length) {
      previous[next[left]] = left;
      push_to_heap(left, next[left]);
    }
    if (left > 0) {
      push_to_heap(previous[left], left);
    }
  }
  ids.erase(std::remove(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), merged_away), ids.end());
}

}  // namespace metro::text
