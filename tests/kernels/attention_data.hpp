// Sequences in a KV cache, and queries that attend to them.
#pragma once

#include "kernels/attention.hpp"

#include "kernel_data.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace metro::test {

// Of the heads of a row.
struct Shape {
  std::int64_t num_heads;
  std::int64_t num_kv_heads;
  std::int64_t head_dim;
};

// Keys and values of some sequences, by position: [sequence, position, num_kv_heads * head_dim].
struct Sequences {
  std::int64_t num_sequences;
  std::int64_t length;
  Array<float> keys;
  Array<float> values;
};

inline Sequences random_sequences(const Shape& shape, std::int64_t num_sequences, std::int64_t length,
                                  Numbers& numbers) {
  const std::int64_t size = num_sequences * length * shape.num_kv_heads * shape.head_dim;
  return {num_sequences, length, numbers.array(size), numbers.array(size)};
}

// A KV cache that holds the sequences, in blocks dealt out in a scattered order. What no token owns is NaN.
class Cache {
 public:
  Cache(const Shape& shape, const Sequences& sequences, std::int64_t block_tokens)
      : max_blocks_((sequences.length + block_tokens - 1) / block_tokens),
        num_blocks_(sequences.num_sequences * max_blocks_ + 2),
        keys_("keys", std::vector<float>(
                          static_cast<std::size_t>(num_blocks_ * shape.num_kv_heads * shape.head_dim * block_tokens),
                          std::numeric_limits<float>::quiet_NaN())),
        values_("values", std::vector<float>(keys_.span().begin(), keys_.span().end())),
        layer_{keys_.data(), values_.data(), block_tokens, shape.num_kv_heads, shape.head_dim} {
    std::vector<std::int32_t> tables;
    for (std::int64_t i = 0; i < sequences.num_sequences * max_blocks_; ++i) {
      tables.push_back(static_cast<std::int32_t>(num_blocks_ - 1 - i));
    }
    tables_ = array_of(tables);
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> sequence_of;
    for (std::int64_t i = 0; i < sequences.num_sequences * sequences.length; ++i) {
      positions.push_back(static_cast<std::int32_t>(i % sequences.length));
      sequence_of.push_back(static_cast<std::int32_t>(i / sequences.length));
    }
    write_kv(sequences.keys.data(), sequences.values.data(), rows(array_of(positions), array_of(sequence_of)), layer_);
  }

  const KvLayer& layer() const { return layer_; }
  const Array<std::int32_t>& tables() const { return tables_; }

  AttentionRows rows(const Array<std::int32_t>& positions, const Array<std::int32_t>& sequences) const {
    return {positions.size(), positions.data(), sequences.data(), tables_.data(), max_blocks_};
  }

 private:
  std::int64_t max_blocks_;
  std::int64_t num_blocks_;
  Array<float> keys_;
  Array<float> values_;
  KvLayer layer_;
  Array<std::int32_t> tables_;
};

// Rows, and the position and sequence of each.
struct Queries {
  Array<float> q;
  Array<std::int32_t> positions;
  Array<std::int32_t> sequences;
};

// What attention() makes of them.
inline Array<float> attend(const Shape& shape, const Queries& queries, const Cache& cache, const AttentionForm& form) {
  const AttentionRows rows = cache.rows(queries.positions, queries.sequences);
  const std::int64_t max_context =
      *std::max_element(queries.positions.span().begin(), queries.positions.span().end()) + 1;
  Array<float> scratch("scratch", attention_scratch_floats(rows.num_rows, shape.num_heads, max_context));
  Array<float> out("out", rows.num_rows * shape.num_heads * shape.head_dim);
  attention(queries.q.data(), rows, cache.layer(), shape.num_heads, form, max_context, scratch.data(), out.data());
  return out;
}

}  // namespace metro::test
