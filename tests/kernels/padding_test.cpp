// Rows that fill a step up to a fixed number of rows are skipped by the kernels that know positions.
#include "base/integers.hpp"
#include "kernel_data.hpp"
#include "kernels/attention.hpp"
#include "kernels/linear.hpp"
#include "mirror_data.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <tuple>

using metro::at;
using metro::AttentionRows;
using metro::KvLayer;
using metro::Mirror;
using metro::StoredType;
using metro::test::mirror_of;
using metro::test::Numbers;
using metro::test::random_weights;
using metro::test::same_bits;
using metro::test::values_of;
using metro::test::Weights;

namespace {

constexpr float unset = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t num_heads = 4;
constexpr std::int64_t num_kv_heads = 2;
constexpr std::int64_t head_dim = 6;
constexpr std::int64_t block_tokens = 4;

std::vector<float> random_floats(std::int64_t size, std::uint32_t seed) {
  Numbers numbers(seed);
  std::vector<float> values(at(size));
  for (float& value : values) {
    value = numbers.next();
  }
  return values;
}

// Rows `first` .. `first` + num - 1 of what has `width` numbers per row.
std::vector<float> rows_of(const std::vector<float>& values, std::int64_t first, std::int64_t num, std::int64_t width) {
  return {values.begin() + first * width, values.begin() + (first + num) * width};
}

}  // namespace

TEST_CASE("embedding gives zeros for a row without a token") {
  Numbers numbers(1);
  const StoredType type = GENERATE(StoredType::bf16, StoredType::f32);
  const Weights table = random_weights(type, 40, 7, numbers);
  const Mirror<std::int32_t> ids = mirror_of(std::vector<std::int32_t>{39, -1, 2});
  const Mirror<float> y = mirror_of(std::vector<float>(21, unset));

  metro::embed(table.packed, ids.kernels(), 3, y.kernels());

  std::vector<float> expected = rows_of(table.values, 39, 1, 7);
  expected.resize(14, 0.0F);
  const std::vector<float> last = rows_of(table.values, 2, 1, 7);
  expected.insert(expected.end(), last.begin(), last.end());
  CHECK(same_bits(values_of(y), expected));
}

TEST_CASE("RoPE leaves a row without a position alone") {
  const std::vector<float> before = random_floats(3 * num_heads * head_dim, 2);
  const Mirror<float> x = mirror_of(before);
  const Mirror<float> cos = mirror_of(random_floats(9 * head_dim / 2, 3));
  const Mirror<float> sin = mirror_of(random_floats(9 * head_dim / 2, 4));
  const Mirror<std::int32_t> positions = mirror_of(std::vector<std::int32_t>{8, -1, 5});

  metro::rope(x.kernels(), positions.kernels(), 3, {num_heads, head_dim}, cos.kernels(), sin.kernels());

  const std::vector<float> after = values_of(x);
  CHECK(same_bits(rows_of(after, 1, 1, num_heads * head_dim), rows_of(before, 1, 1, num_heads * head_dim)));
  CHECK(!same_bits(rows_of(after, 0, 1, num_heads * head_dim), rows_of(before, 0, 1, num_heads * head_dim)));
  CHECK(!same_bits(rows_of(after, 2, 1, num_heads * head_dim), rows_of(before, 2, 1, num_heads * head_dim)));
}

TEST_CASE("keys, values and attention of real rows are the same with padding between them, which gives zeros") {
  const std::int64_t kv_width = num_kv_heads * head_dim;
  const std::int64_t width = num_heads * head_dim;
  const std::int64_t cache_floats = 3 * kv_width * block_tokens;
  const Mirror<std::int32_t> tables = mirror_of(std::vector<std::int32_t>{2, 0, 1, 1});
  const std::vector<float> q = random_floats(4 * width, 5);
  const std::vector<float> k = random_floats(4 * kv_width, 6);
  const std::vector<float> v = random_floats(4 * kv_width, 7);
  const std::int64_t num_scratch = metro::attention_scratch_floats(4, num_heads, 8);
  // Rows 0 and 1 are positions of sequence 0; in the padded step they are rows 0 and 2, and padding has sequences that
  // do not exist.
  const auto run = [&](const std::vector<std::int32_t>& positions, const std::vector<std::int32_t>& sequences,
                       const std::vector<std::int64_t>& row_of) {
    std::vector<float> own_q, own_k, own_v;
    for (const std::int64_t row : row_of) {
      for (const auto& [from, to, size] :
           {std::tuple{&q, &own_q, width}, {&k, &own_k, kv_width}, {&v, &own_v, kv_width}}) {
        const std::vector<float> values = rows_of(*from, row, 1, size);
        to->insert(to->end(), values.begin(), values.end());
      }
    }
    const Mirror<std::int32_t> positions_of = mirror_of(positions);
    const Mirror<std::int32_t> sequences_of = mirror_of(sequences);
    const Mirror<float> keys = mirror_of(std::vector<float>(at(cache_floats), 0.25F));
    const Mirror<float> values = mirror_of(std::vector<float>(at(cache_floats), 0.5F));
    const Mirror<float> scratch = mirror_of(std::vector<float>(at(num_scratch), unset));
    const Mirror<float> out = mirror_of(std::vector<float>(own_q.size(), unset));
    const Mirror<float> queries = mirror_of(own_q);
    const Mirror<float> new_keys = mirror_of(own_k);
    const Mirror<float> new_values = mirror_of(own_v);
    const KvLayer cache = {keys.kernels(), values.kernels(), block_tokens, num_kv_heads, head_dim};
    const AttentionRows rows = {std::ssize(positions), positions_of.kernels(), sequences_of.kernels(), tables.kernels(),
                                2};
    metro::write_kv(new_keys.kernels(), new_values.kernels(), rows, cache);
    metro::attention(queries.kernels(), rows, cache, num_heads, {.scale = 0.4F}, 8, scratch.kernels(), out.kernels());
    return std::tuple{values_of(keys), values_of(values), values_of(out)};
  };

  const auto [keys, values, out] = run({3, 5}, {0, 0}, {0, 1});
  const auto [padded_keys, padded_values, padded_out] = run({3, -1, 5, -1}, {0, 99, 0, -1}, {0, 2, 1, 3});

  CHECK(same_bits(padded_keys, keys));
  CHECK(same_bits(padded_values, values));
  CHECK(same_bits(rows_of(padded_out, 0, 1, width), rows_of(out, 0, 1, width)));
  CHECK(same_bits(rows_of(padded_out, 2, 1, width), rows_of(out, 1, 1, width)));
  CHECK(same_bits(rows_of(padded_out, 1, 1, width), std::vector<float>(at(width), 0.0F)));
  CHECK(same_bits(rows_of(padded_out, 3, 1, width), std::vector<float>(at(width), 0.0F)));
}
