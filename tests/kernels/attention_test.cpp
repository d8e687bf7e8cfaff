#include "kernels/attention.hpp"

#include "attention_data.hpp"
#include "base/error.hpp"
#include "kernels/portable/math.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

using metro::KvLayer;
using metro::test::Array;
using metro::test::array_of;
using metro::test::attend;
using metro::test::Cache;
using metro::test::Numbers;
using metro::test::part;
using metro::test::Queries;
using metro::test::random_sequences;
using metro::test::same_bits;
using metro::test::Sequences;
using metro::test::Shape;

namespace {

const float* token(const Array<float>& of, const Shape& shape, const Sequences& sequences, std::int64_t sequence,
                   std::int64_t position, std::int64_t kv_head) {
  return of.span().data() + ((sequence * sequences.length + position) * shape.num_kv_heads + kv_head) * shape.head_dim;
}

// How a head's form is known on the host.
struct HeadForm {
  float scale = 1.0F;
  std::int64_t window = 0;
  std::optional<float> sink = {};
};

// One head by the definition in attention.hpp, with scalar arithmetic.
std::vector<float> defined_head(const Shape& shape, const Sequences& sequences, const Queries& queries,
                                std::int64_t row, std::int64_t head, const HeadForm& form) {
  const std::int64_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
  const float* q = queries.q.span().data() + (row * shape.num_heads + head) * shape.head_dim;
  std::vector<float> scores;
  float top = form.sink.value_or(-std::numeric_limits<float>::infinity());
  const std::int64_t position = queries.positions[row];
  const std::int64_t first = form.window == 0 ? 0 : std::max<std::int64_t>(0, position - form.window + 1);
  for (std::int64_t j = first; j <= position; ++j) {
    const float* key = token(sequences.keys, shape, sequences, queries.sequences[row], j, kv_head);
    float score = 0.0F;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      score = std::fma(q[d], key[d], score);
    }
    scores.push_back(form.scale * score);
    top = std::max(top, scores.back());
  }
  std::vector<float> partials(16, 0.0F);
  std::vector<float> out(static_cast<std::size_t>(shape.head_dim), 0.0F);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const float e = metro::portable::exp_of(scores[i] - top);
    partials[i % 16] = partials[i % 16] + e;
    const float* value = token(sequences.values, shape, sequences, queries.sequences[row],
                               first + static_cast<std::int64_t>(i), kv_head);
    for (std::size_t d = 0; d < out.size(); ++d) {
      out[d] = std::fma(e, value[d], out[d]);
    }
  }
  float sum = metro::test::tree(partials);
  if (form.sink) {
    sum = sum + metro::portable::exp_of(*form.sink - top);
  }
  for (float& value : out) {
    value = value / sum;
  }
  return out;
}

// The same in double precision by the plain formula, for the only row of one sequence, whose heads share a KV head.
std::vector<double> exact_head(const Shape& shape, const Sequences& sequences, const Queries& queries,
                               std::int64_t head, const HeadForm& form) {
  const std::int64_t position = queries.positions[0];
  const std::int64_t first = form.window == 0 ? 0 : position + 1 - form.window;
  const std::span<const float> q = part(queries.q, head * shape.head_dim, shape.head_dim);
  std::vector<double> weighted(q.size(), 0.0);
  double sum = form.sink ? std::exp(static_cast<double>(*form.sink)) : 0.0;
  for (std::int64_t j = first; j <= position; ++j) {
    const std::span<const float> key = part(sequences.keys, j * shape.head_dim, shape.head_dim);
    const std::span<const float> value = part(sequences.values, j * shape.head_dim, shape.head_dim);
    double score = 0;
    for (std::size_t d = 0; d < q.size(); ++d) {
      score += static_cast<double>(q[d]) * static_cast<double>(key[d]);
    }
    const double e = std::exp(static_cast<double>(form.scale) * score);
    sum += e;
    for (std::size_t d = 0; d < q.size(); ++d) {
      weighted[d] += e * static_cast<double>(value[d]);
    }
  }
  for (double& element : weighted) {
    element /= sum;
  }
  return weighted;
}

}  // namespace

TEST_CASE("attention follows its definition bit for bit for every block size and head layout") {
  const Shape shape = GENERATE(Shape{1, 1, 8}, Shape{4, 4, 16}, Shape{8, 2, 16}, Shape{7, 1, 18}, Shape{6, 2, 6});
  const std::int64_t block_tokens = GENERATE(1, 3, 4, 8, 16, 24, 40);
  Numbers numbers(1);
  const Sequences sequences = random_sequences(shape, 2, 40, numbers);
  const Queries queries = {numbers.array(5 * shape.num_heads * shape.head_dim, 2.0F),
                           array_of<std::int32_t>({0, 39, 16, 15, 37}), array_of<std::int32_t>({0, 0, 1, 0, 1})};
  const Cache cache(shape, sequences, block_tokens);

  const Array<float> out = attend(shape, queries, cache, {.scale = 0.3F});

  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t head = 0; head < shape.num_heads; ++head) {
      REQUIRE(same_bits(part(out, (r * shape.num_heads + head) * shape.head_dim, shape.head_dim),
                        defined_head(shape, sequences, queries, r, head, {.scale = 0.3F})));
    }
  }
}

TEST_CASE("attention with a window and sinks follows its definition bit for bit, wherever blocks begin") {
  const Shape shape = GENERATE(Shape{4, 4, 16}, Shape{7, 1, 18}, Shape{6, 2, 6});
  const std::int64_t block_tokens = GENERATE(1, 3, 8, 16, 32, 40);
  const std::int64_t window = GENERATE(0, 1, 2, 9, 16, 17, 39, 40, 41, 1 << 30);
  const bool has_sinks = GENERATE(false, true);
  Numbers numbers(6);
  const Sequences sequences = random_sequences(shape, 2, 40, numbers);
  const Queries queries = {numbers.array(6 * shape.num_heads * shape.head_dim, 2.0F),
                           array_of<std::int32_t>({0, 39, 16, 15, 37, 8}), array_of<std::int32_t>({0, 0, 1, 0, 1, 0})};
  const Array<float> sinks = numbers.array(shape.num_heads, 4.0F);
  const Cache cache(shape, sequences, block_tokens);

  const Array<float> out =
      attend(shape, queries, cache, {.scale = 0.3F, .window = window, .sinks = has_sinks ? sinks.data() : nullptr});

  for (std::int64_t r = 0; r < 6; ++r) {
    for (std::int64_t head = 0; head < shape.num_heads; ++head) {
      const HeadForm form = {0.3F, window, has_sinks ? std::optional(sinks[head]) : std::nullopt};
      REQUIRE(same_bits(part(out, (r * shape.num_heads + head) * shape.head_dim, shape.head_dim),
                        defined_head(shape, sequences, queries, r, head, form)));
    }
  }
}

TEST_CASE("keys and values before the window may be anything") {
  const Shape shape = {4, 2, 16};
  const std::int64_t block_tokens = GENERATE(3, 16);
  const std::int64_t window = 20;
  const std::int64_t first_key = 70 - window;
  Numbers numbers(7);
  Sequences sequences = random_sequences(shape, 1, 70, numbers);
  const Queries queries = {numbers.array(4 * 16), array_of<std::int32_t>({69}), array_of<std::int32_t>({0})};
  const Array<float> expected =
      attend(shape, queries, Cache(shape, sequences, block_tokens), {.scale = 0.2F, .window = window});
  for (Array<float>* of : {&sequences.keys, &sequences.values}) {
    std::fill_n(of->span().begin(), first_key * shape.num_kv_heads * shape.head_dim,
                std::numeric_limits<float>::quiet_NaN());
  }

  const Array<float> out =
      attend(shape, queries, Cache(shape, sequences, block_tokens), {.scale = 0.2F, .window = window});

  CHECK(same_bits(out.span(), expected.span()));
}

TEST_CASE("attention gives a row the same bits alone and in a batch") {
  const Shape shape = {8, 2, 32};
  const std::int64_t row_size = shape.num_heads * shape.head_dim;
  Numbers numbers(2);
  const Sequences sequences = random_sequences(shape, 3, 50, numbers);
  const Queries queries = {numbers.array(3 * row_size), array_of<std::int32_t>({49, 7, 30}),
                           array_of<std::int32_t>({2, 0, 1})};
  const Cache cache(shape, sequences, 16);

  const Array<float> together = attend(shape, queries, cache, {.scale = 0.2F});

  for (std::int64_t r = 0; r < 3; ++r) {
    const auto q = part(queries.q, r * row_size, row_size);
    const Queries one = {array_of(std::vector<float>(q.begin(), q.end())),
                         array_of<std::int32_t>({queries.positions[r]}),
                         array_of<std::int32_t>({queries.sequences[r]})};
    CHECK(same_bits(attend(shape, one, cache, {.scale = 0.2F}).span(), part(together, r * row_size, row_size)));
  }
}

TEST_CASE("attention agrees with softmax attention in double precision") {
  const Shape shape = {2, 1, 64};
  Numbers numbers(3);
  const Sequences sequences = random_sequences(shape, 1, 300, numbers);
  const Queries queries = {numbers.array(2 * 64, 3.0F), array_of<std::int32_t>({299}), array_of<std::int32_t>({0})};
  const Cache cache(shape, sequences, 16);

  const Array<float> out = attend(shape, queries, cache, {.scale = 0.125F});

  for (std::int64_t head = 0; head < 2; ++head) {
    const std::vector<double> exact = exact_head(shape, sequences, queries, head, {.scale = 0.125F});
    for (std::size_t d = 0; d < 64; ++d) {
      // A weighted mean of values below 1; 300 + 64 roundings of 2^-24 at most, mostly cancelling.
      CHECK(static_cast<double>(out[head * 64 + static_cast<std::int64_t>(d)]) == Approx(exact[d]).margin(5e-6));
    }
  }
}

TEST_CASE("attention with a window and sinks agrees with double precision") {
  const Shape shape = {2, 1, 64};
  const std::int64_t window = 128;
  Numbers numbers(8);
  const Sequences sequences = random_sequences(shape, 1, 300, numbers);
  const Queries queries = {numbers.array(2 * 64, 3.0F), array_of<std::int32_t>({299}), array_of<std::int32_t>({0})};
  const Array<float> sinks = array_of<float>({-1.5F, 6.0F});  // one below the best score, one above
  const Cache cache(shape, sequences, 16);

  const Array<float> out = attend(shape, queries, cache, {.scale = 0.125F, .window = window, .sinks = sinks.data()});

  for (std::int64_t head = 0; head < 2; ++head) {
    const std::vector<double> exact = exact_head(shape, sequences, queries, head, {0.125F, window, sinks[head]});
    for (std::size_t d = 0; d < 64; ++d) {
      // As without a window.
      CHECK(static_cast<double>(out[head * 64 + static_cast<std::int64_t>(d)]) == Approx(exact[d]).margin(5e-6));
    }
  }
}

TEST_CASE("a sink far above all scores leaves nothing of the values, one far below changes no bit") {
  const Shape shape = {1, 1, 8};
  Numbers numbers(9);
  const Sequences sequences = random_sequences(shape, 1, 5, numbers);
  const Queries queries = {numbers.array(8), array_of<std::int32_t>({4}), array_of<std::int32_t>({0})};
  const Cache cache(shape, sequences, 4);
  const Array<float> above = array_of<float>({200.0F});
  const Array<float> below = array_of<float>({-200.0F});

  const Array<float> without = attend(shape, queries, cache, {});
  const Array<float> drowned = attend(shape, queries, cache, {.sinks = above.data()});
  const Array<float> untouched = attend(shape, queries, cache, {.sinks = below.data()});

  CHECK(same_bits(untouched.span(), without.span()));
  CHECK(std::all_of(drowned.span().begin(), drowned.span().end(), [](float value) { return value == 0.0F; }));
}

TEST_CASE("attention to the first position returns its value, and equal scores return the mean") {
  const Shape shape = {2, 2, 8};
  Numbers numbers(4);
  Sequences sequences = random_sequences(shape, 1, 4, numbers);
  std::fill(sequences.keys.span().begin(), sequences.keys.span().end(), 1.0F);
  for (std::int64_t i = 0; i < sequences.values.size(); ++i) {
    sequences.values[i] = static_cast<float>(i / 16);  // the position
  }
  const Queries queries = {numbers.array(2 * 16), array_of<std::int32_t>({0, 3}), array_of<std::int32_t>({0, 0})};
  const Cache cache(shape, sequences, 3);

  const Array<float> out = attend(shape, queries, cache, {.scale = 1.0F});

  CHECK(same_bits(part(out, 0, 16), std::vector<float>(16, 0.0F)));
  CHECK(same_bits(part(out, 16, 16), std::vector<float>(16, 1.5F)));
}

TEST_CASE("write_kv puts keys with positions side by side and values with dimensions side by side") {
  const Shape shape = {1, 2, 3};
  const std::int64_t block_tokens = 4;
  Array<float> keys("keys", 3 * 2 * 3 * block_tokens);
  Array<float> values("values", 3 * 2 * 3 * block_tokens);
  const KvLayer cache = {keys.data(), values.data(), block_tokens, shape.num_kv_heads, shape.head_dim};
  const Array<float> k = array_of<float>({1, 2, 3, 4, 5, 6});
  const Array<float> v = array_of<float>({11, 12, 13, 14, 15, 16});
  const auto positions = array_of<std::int32_t>({6});  // second block of the sequence, third token
  const auto sequence = array_of<std::int32_t>({1});
  const auto tables = array_of<std::int32_t>({0, 1, 1, 2});

  metro::write_kv(k.data(), v.data(), {1, positions.data(), sequence.data(), tables.data(), 2}, cache);

  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t d = 0; d < 3; ++d) {
      CHECK(keys[((2 * 2 + head) * 3 + d) * block_tokens + 2] == static_cast<float>(1 + head * 3 + d));
      CHECK(values[((2 * 2 + head) * block_tokens + 2) * 3 + d] == static_cast<float>(11 + head * 3 + d));
    }
  }
  CHECK(std::count(keys.span().begin(), keys.span().end(), 0.0F) == 72 - 6);
  CHECK(std::count(values.span().begin(), values.span().end(), 0.0F) == 72 - 6);
}

TEST_CASE("attention kernels without rows do nothing, and impossible shapes are bugs") {
  const KvLayer cache = {nullptr, nullptr, 16, 2, 8};
  const KvLayer no_blocks = {nullptr, nullptr, 0, 2, 8};

  metro::rope(nullptr, nullptr, 0, {2, 8}, nullptr, nullptr);
  metro::write_kv(nullptr, nullptr, {}, cache);
  metro::attention(nullptr, {}, cache, 4, {}, 0, nullptr, nullptr);

  CHECK(metro::attention_scratch_floats(0, 4, 100) == 0);
  CHECK_THROWS_AS(metro::rope(nullptr, nullptr, 0, {2, 7}, nullptr, nullptr), metro::Bug);
  CHECK_THROWS_AS(metro::attention(nullptr, {}, cache, 3, {}, 0, nullptr, nullptr), metro::Bug);
  CHECK_THROWS_AS(metro::attention(nullptr, {}, cache, 4, {.window = -1}, 0, nullptr, nullptr), metro::Bug);
  CHECK_THROWS_AS(metro::attention(nullptr, {}, no_blocks, 4, {}, 0, nullptr, nullptr), metro::Bug);
}
