// Small products of attention: a group of query heads times the keys or the values of one KV block.
//   c[h, n] (+)= sum over k of a[h, k] * b[k, n], by fma in ascending k.
#pragma once

#include <cstdint>

namespace metro::cpu {

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
  const float* next_b;  // of the product after this one, which is fetched meanwhile; nullptr: there is none
};

// In the form of the SIMD level in use.
void multiply_heads(const HeadProduct& product);

}  // namespace metro::cpu
