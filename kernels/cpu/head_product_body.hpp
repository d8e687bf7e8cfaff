// The head product, written once over a struct `Simd` of vector operations; see simd_body.hpp.
#pragma once

#include "kernels/cpu/head_product.hpp"
#include "kernels/cpu/simd_body.hpp"

namespace metro::cpu {
namespace {

// Heads whose sums are held at a time: few enough for the registers, with two vectors of columns each.
template <class Simd>
constexpr int heads_at_once = Simd::most_sums >= 24 ? 8 : 4;

template <class Simd, int num_heads, int num_vectors>
void multiply_head_tile(const HeadProduct& p, std::int64_t first_head, std::int64_t first_column) {
  using Vector = typename Simd::Vector;
  Vector sums[num_heads][num_vectors];
  float* c = p.c + first_head * p.c_stride + first_column;
  METRO_UNROLL
  for (int head = 0; head < num_heads; ++head) {
    METRO_UNROLL
    for (int i = 0; i < num_vectors; ++i) {
      sums[head][i] = p.from_zero ? Simd::broadcast(0.0F) : Simd::load(c + head * p.c_stride + i * Simd::lanes);
    }
  }
  const float* a = p.a.data + first_head * p.a.stride;
  const float* b = p.b.data + first_column;
  const float* ahead = p.next_b != nullptr && first_head == 0 ? p.next_b + first_column : b;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    METRO_UNROLL
    for (int i = 0; i < num_vectors; ++i) {
      __builtin_prefetch(ahead + k * p.b.stride + i * Simd::lanes, 0, 3);
      const Vector column = Simd::load(b + k * p.b.stride + i * Simd::lanes);
      METRO_UNROLL
      for (int head = 0; head < num_heads; ++head) {
        sums[head][i] = Simd::fused(Simd::broadcast(a[head * p.a.stride + k]), column, sums[head][i]);
      }
    }
  }
  METRO_UNROLL
  for (int head = 0; head < num_heads; ++head) {
    METRO_UNROLL
    for (int i = 0; i < num_vectors; ++i) {
      Simd::store(sums[head][i], c + head * p.c_stride + i * Simd::lanes);
    }
  }
}

// Columns that do not fill a vector.
inline void multiply_head_column(const HeadProduct& p, std::int64_t head, std::int64_t column) {
  float* destination = p.c + head * p.c_stride + column;
  float sum = p.from_zero ? 0.0F : *destination;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    sum = __builtin_fmaf(p.a.data[head * p.a.stride + k], p.b.data[k * p.b.stride + column], sum);
  }
  *destination = sum;
}

template <class Simd, int num_heads>
void multiply_head_group(const HeadProduct& p, std::int64_t first_head) {
  std::int64_t column = 0;
  for (; column + 2 * Simd::lanes <= p.columns; column += 2 * Simd::lanes) {
    multiply_head_tile<Simd, num_heads, 2>(p, first_head, column);
  }
  for (; column + Simd::lanes <= p.columns; column += Simd::lanes) {
    multiply_head_tile<Simd, num_heads, 1>(p, first_head, column);
  }
  for (; column < p.columns; ++column) {
    for (std::int64_t head = first_head; head < first_head + num_heads; ++head) {
      multiply_head_column(p, head, column);
    }
  }
}

// As many heads at a time as there are left, halving what is held.
template <class Simd, int num_heads>
void multiply_heads_from(const HeadProduct& p, std::int64_t head) {
  for (; head + num_heads <= p.num_heads; head += num_heads) {
    multiply_head_group<Simd, num_heads>(p, head);
  }
  if constexpr (num_heads > 1) {
    multiply_heads_from<Simd, num_heads / 2>(p, head);
  }
}

template <class Simd>
void multiply_heads_by(const HeadProduct& p) {
  multiply_heads_from<Simd, heads_at_once<Simd>>(p, 0);
}

}  // namespace
}  // namespace metro::cpu
