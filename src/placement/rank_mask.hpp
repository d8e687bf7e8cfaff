// A set of ranks as bits, of a width known when compiling: up to 64 ranks are one word.
#pragma once

#include "base/error.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace metro {

template <int num_words>
class RankMask {
 public:
  static constexpr std::int64_t max_ranks = std::int64_t{num_words} * 64;

  static RankMask first(std::int64_t num_ranks) {
    RankMask mask;
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      mask.add(rank);
    }
    return mask;
  }

  void add(std::int64_t rank) { word_of(rank) |= bit_of(rank); }
  void remove(std::int64_t rank) { word_of(rank) &= ~bit_of(rank); }
  bool has(std::int64_t rank) const { return (words_[static_cast<std::size_t>(rank / 64)] & bit_of(rank)) != 0; }

  bool is_empty() const {
    std::uint64_t any = 0;
    for (const std::uint64_t word : words_) {
      any |= word;
    }
    return any == 0;
  }
  bool is_within(const RankMask& other) const { return minus(other).is_empty(); }
  RankMask minus(const RankMask& other) const {
    RankMask result;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      result.words_[i] = words_[i] & ~other.words_[i];
    }
    return result;
  }
  RankMask& operator|=(const RankMask& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] |= other.words_[i];
    }
    return *this;
  }
  std::int32_t size() const {
    std::int32_t count = 0;
    for (const std::uint64_t word : words_) {
      count += std::popcount(word);
    }
    return count;
  }

  // Calls take(rank) in ascending order.
  template <class F>
  void for_each(F take) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t bits = words_[i]; bits != 0; bits &= bits - 1) {
        take(static_cast<std::int32_t>(i * 64) + std::countr_zero(bits));
      }
    }
  }

 private:
  static std::uint64_t bit_of(std::int64_t rank) { return std::uint64_t{1} << (rank % 64); }
  std::uint64_t& word_of(std::int64_t rank) { return words_[static_cast<std::size_t>(rank / 64)]; }

  std::array<std::uint64_t, num_words> words_{};
};

// Calls work(std::integral_constant<int, w>) with the least width that LambdaTracker is built for and that holds
// num_ranks. Throws Error(usage) if there is none.
template <class F>
auto with_mask_width(std::int64_t num_ranks, F work) {
  if (num_ranks <= RankMask<1>::max_ranks) {
    return work(std::integral_constant<int, 1>());
  }
  if (num_ranks <= RankMask<4>::max_ranks) {
    return work(std::integral_constant<int, 4>());
  }
  if (num_ranks > RankMask<16>::max_ranks) {
    throw Error(ExitCode::usage, "expected lambda is computed for at most " + std::to_string(RankMask<16>::max_ranks) +
                                     " ranks, not " + std::to_string(num_ranks));
  }
  return work(std::integral_constant<int, 16>());
}

}  // namespace metro
