// What is reduced over a row: sums in 16 partial sums, maxima, and the best elements in descending order. Called by all
// threads of a team; all of them get the result.
#pragma once

#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/math.hpp"

#include <cstdint>
#include <limits>

namespace metro::portable {

// The fixed tree: partial i + partial i + 8, then + 4, + 2, + 1.
KOKKOS_INLINE_FUNCTION float join_partials(const float* partials) {
  float sums[num_partials / 2];
  for (int i = 0; i < num_partials / 2; ++i) {
    sums[i] = partials[i] + partials[i + num_partials / 2];
  }
  for (int width = num_partials / 4; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      sums[i] = sums[i] + sums[i + width];
    }
  }
  return sums[0];
}

// Where a team gathers the terms of a sum. Made once by every thread of a kernel launched with its shape.
class SumTerms {
 public:
  static constexpr std::int64_t num_terms = 2048;  // at a time; a multiple of num_partials
  static constexpr TeamShape shape = {256, num_terms* std::int64_t{sizeof(float)}};

#if METRO_DEVICE_FORM
  KOKKOS_FUNCTION explicit SumTerms(const Team& team) : terms_(static_cast<float*>(team.shared(shape.shared_bytes))) {}
  KOKKOS_FUNCTION float* data() const {
    return terms_;
  }

 private:
  float* terms_;
#else
  explicit SumTerms(const Team& /*one thread*/) {}
#endif
};

// Term i is added to partial sum i mod 16, in ascending order: partial = add(term(i), partial), from 0. Ends with a
// barrier. On a device all threads compute terms, and the few that add find them close by.
template <class Term, class Add>
KOKKOS_FORCEINLINE_FUNCTION float sum_in_partials(const Team& team, const SumTerms& terms, std::int64_t size,
                                                  const Term& term, const Add& add) {
#if METRO_DEVICE_FORM
  float* gathered = terms.data();
  float* partials = team.partials();
  std::int64_t first = 0;
  do {
    const std::int64_t count = size - first < SumTerms::num_terms ? size - first : SumTerms::num_terms;
    copy_by_team(
        team, count, [&](std::int64_t i) { return term(first + i); },
        [&](std::int64_t i, float value) { gathered[i] = value; });
    team.barrier();
    for (std::int64_t partial_idx = team.rank(); partial_idx < num_partials; partial_idx += team.size()) {
      float partial = first == 0 ? 0.0F : partials[partial_idx];
      for (std::int64_t i = partial_idx; i < count; i += num_partials) {
        partial = add(gathered[i], partial);
      }
      partials[partial_idx] = partial;
    }
    team.barrier();
    first += count;
  } while (first < size);
  const float sum = join_partials(partials);
  team.barrier();  // before the partial sums are used again
  return sum;
#else
  static_cast<void>(team);
  static_cast<void>(terms);
  float partials[num_partials] = {};
  const std::int64_t whole = size / num_partials * num_partials;
  for (std::int64_t first = 0; first < whole; first += num_partials) {
    METRO_INDEPENDENT
    for (int i = 0; i < num_partials; ++i) {
      partials[i] = add(term(first + i), partials[i]);
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    partials[i - whole] = add(term(i), partials[i - whole]);
  }
  return join_partials(partials);
#endif
}

// Largest value(i); NaN is passed over; -infinity for an empty or all-NaN row.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION float largest(const Team& team, std::int64_t size, const F& value) {
  constexpr int width = device_form ? 1 : num_partials;
  float best[width];
  for (int lane = 0; lane < width; ++lane) {
    best[lane] = -std::numeric_limits<float>::infinity();
  }
  const std::int64_t step = team.size() * width;
  for (std::int64_t first = team.rank() * width; first < size; first += step) {
    const std::int64_t left = size - first;
    if (left >= width) {
      for (int lane = 0; lane < width; ++lane) {
        const float candidate = value(first + lane);
        best[lane] = candidate > best[lane] ? candidate : best[lane];
      }
    } else {
      for (int lane = 0; lane < left; ++lane) {
        const float candidate = value(first + lane);
        best[lane] = candidate > best[lane] ? candidate : best[lane];
      }
    }
  }
  for (int lane = 1; lane < width; ++lane) {
    best[0] = best[lane] > best[0] ? best[lane] : best[0];
  }
  return team.max(best[0]);
}

// values[i] becomes exp(scale values[i] - top); returns their sum. For a softmax, top is the largest of scale values[i]
// or more.
KOKKOS_FORCEINLINE_FUNCTION float make_exponentials(const Team& team, const SumTerms& terms, std::int64_t size,
                                                    float scale, float top, float* values) {
  return sum_in_partials(
      team, terms, size,
      [=](std::int64_t i) {
        const float e = exp_of(scale * values[i] - top);
        values[i] = e;
        return e;
      },
      [](float e, float partial) { return partial + e; });
}

// An integer that is larger for a larger value and, between equal values, for the lower id. +0 equals -0; NaN comes
// after everything else. Never 0, never the largest integer; distinct for distinct ids.
KOKKOS_FORCEINLINE_FUNCTION std::uint64_t rank_code(float value, std::int64_t id) {
  const std::uint32_t bits = bits_of(value + 0.0F);
  const std::uint32_t sign = 0x80000000U;
  const std::uint32_t ordered = (bits & sign) != 0 ? ~bits : bits | sign;
  const std::uint32_t key = value == value ? ordered : 0U;
  return (static_cast<std::uint64_t>(key) << 32) | (0xffffffffU - static_cast<std::uint32_t>(id));
}

KOKKOS_FORCEINLINE_FUNCTION std::int32_t id_of_rank_code(std::uint64_t code) {
  return static_cast<std::int32_t>(0xffffffffU - static_cast<std::uint32_t>(code));
}

inline constexpr std::uint64_t above_all_codes = std::numeric_limits<std::uint64_t>::max();

// The largest code of value(i), i in 0..size-1, that is below `limit`: above_all_codes gives the best element, its code
// the second best, and so on. There must be one.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION std::uint64_t best_below(const Team& team, std::int64_t size, std::uint64_t limit,
                                                     const F& value) {
  std::uint64_t best = 0;
  const std::int64_t step = team.size();
  for (std::int64_t i = team.rank(); i < size; i += step) {
    const std::uint64_t code = rank_code(value(i), i);
    best = code < limit && code > best ? code : best;
  }
  return team.max(best);
}

KOKKOS_INLINE_FUNCTION std::uint64_t best_below(const Team& team, const float* values, std::int64_t size,
                                                std::uint64_t limit) {
  return best_below(team, size, limit, [=](std::int64_t i) { return values[i]; });
}

}  // namespace metro::portable
