// Small products of attention: a group of query heads times the keys or the values of one KV block.
//   c[h, n] (+)= sum over k of a[h, k] * b[k, n], by fma in ascending k.
#pragma once

#include "kernels/portable/kokkos_compat.hpp"
#if !METRO_DEVICE_FORM
#include "kernels/portable/lanes.hpp"
#endif

#include <cstdint>

namespace metro::portable {

// Row-major, rows `stride` elements apart.
struct ConstRows {
  const float* data;
  std::int64_t stride;
};

// `c` is continued, or begun at 0 with from_zero.
struct HeadProduct {
  std::int64_t num_heads;
  std::int64_t depth;
  std::int64_t columns;
  ConstRows a;  // [num_heads, depth]
  ConstRows b;  // [depth, columns]
  float* c;     // [num_heads, columns]
  std::int64_t c_stride;
  bool from_zero;
};

// One column at a time.
KOKKOS_INLINE_FUNCTION void multiply_column(const HeadProduct& p, std::int64_t head, std::int64_t column) {
  float* destination = p.c + head * p.c_stride + column;
  float sum = p.from_zero ? 0.0F : *destination;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    sum = fused(p.a.data[head * p.a.stride + k], p.b.data[k * p.b.stride + column], sum);
  }
  *destination = sum;
}

#if METRO_DEVICE_FORM

// Columns are shared among the team. No barrier.
KOKKOS_INLINE_FUNCTION void multiply_heads(const Team& team, const HeadProduct& p) {
  for (std::int64_t column = team.rank(); column < p.columns; column += team.size()) {
    for (std::int64_t head = 0; head < p.num_heads; ++head) {
      multiply_column(p, head, column);
    }
  }
}

#else

template <int num_heads, int num_vectors>
inline void multiply_head_tile(const HeadProduct& p, std::int64_t first_head, std::int64_t first_column) {
  Lanes sums[num_heads][num_vectors];
  float* c = p.c + first_head * p.c_stride + first_column;
  for (int head = 0; head < num_heads; ++head) {
    for (int i = 0; i < num_vectors; ++i) {
      sums[head][i] = p.from_zero ? Lanes{} : load(c + head * p.c_stride + i * num_lanes);
    }
  }
  const float* a = p.a.data + first_head * p.a.stride;
  const float* b = p.b.data + first_column;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    for (int i = 0; i < num_vectors; ++i) {
      const Lanes column = load(b + k * p.b.stride + i * num_lanes);
      for (int head = 0; head < num_heads; ++head) {
        sums[head][i] = fused(broadcast(a[head * p.a.stride + k]), column, sums[head][i]);
      }
    }
  }
  for (int head = 0; head < num_heads; ++head) {
    for (int i = 0; i < num_vectors; ++i) {
      store(sums[head][i], c + head * p.c_stride + i * num_lanes);
    }
  }
}

template <int num_heads>
inline void multiply_head_group(const HeadProduct& p, std::int64_t first_head) {
  std::int64_t column = 0;
  for (; column + 2 * num_lanes <= p.columns; column += 2 * num_lanes) {
    multiply_head_tile<num_heads, 2>(p, first_head, column);
  }
  for (; column + num_lanes <= p.columns; column += num_lanes) {
    multiply_head_tile<num_heads, 1>(p, first_head, column);
  }
  for (; column < p.columns; ++column) {
    for (std::int64_t head = first_head; head < first_head + num_heads; ++head) {
      multiply_column(p, head, column);
    }
  }
}

inline void multiply_heads(const Team& /*one thread*/, const HeadProduct& p) {
  std::int64_t head = 0;
  for (; head + 4 <= p.num_heads; head += 4) {
    multiply_head_group<4>(p, head);
  }
  for (; head + 2 <= p.num_heads; head += 2) {
    multiply_head_group<2>(p, head);
  }
  for (; head < p.num_heads; ++head) {
    multiply_head_group<1>(p, head);
  }
}

#endif

}  // namespace metro::portable
