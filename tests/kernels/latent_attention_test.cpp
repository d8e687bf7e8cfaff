// Both forms of latent attention against their definition, step by step, and against each other.
#include "kernels/latent_attention.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernel_data.hpp"
#include "kernels/portable/math.hpp"
#include "mirror_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using metro::at;
using metro::AttentionRows;
using metro::LatentCache;
using metro::Mirror;
using metro::QueryTile;
using metro::test::mirror_of;
using metro::test::Numbers;
using metro::test::same_bits;
using metro::test::tree;
using metro::test::values_of;

namespace {

constexpr float unset = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  std::int64_t num_heads, kv_rank, nope_dim, rope_dim, value_dim;
};

std::vector<float> random_floats(std::int64_t size, std::uint32_t seed) {
  Numbers numbers(seed);
  std::vector<float> values(at(size));
  for (float& value : values) {
    value = numbers.next();
  }
  return values;
}

// Two sequences of `length` cached tokens, in blocks dealt out in descending order. What no token owns is NaN.
class Context {
 public:
  Context(const Shape& shape, std::int64_t length, std::int64_t block_tokens)
      : shape_(shape),
        length_(length),
        max_blocks_((length + block_tokens - 1) / block_tokens),
        latents_(random_floats(2 * length * shape.kv_rank, 11)),
        rotated_(random_floats(2 * length * shape.rope_dim, 12)),
        tokens_(mirror_of(
            std::vector<float>(at((2 * max_blocks_ + 1) * block_tokens * (shape.kv_rank + shape.rope_dim)), unset))),
        cache_{tokens_.kernels(), block_tokens, shape.kv_rank, shape.rope_dim} {
    std::vector<std::int32_t> tables, positions, sequences;
    for (std::int64_t i = 0; i < 2 * max_blocks_; ++i) {
      tables.push_back(static_cast<std::int32_t>(2 * max_blocks_ - i));
    }
    for (std::int64_t i = 0; i < 2 * length; ++i) {
      positions.push_back(static_cast<std::int32_t>(i % length));
      sequences.push_back(static_cast<std::int32_t>(i / length));
    }
    tables_ = mirror_of(tables);
    const auto all_positions = mirror_of(positions);
    const auto all_sequences = mirror_of(sequences);
    const auto latents = mirror_of(latents_);
    const auto rotated = mirror_of(rotated_);
    metro::write_latents(latents.kernels(), rotated.kernels(), rows(all_positions, all_sequences), cache_);
    metro::wait_for_kernels();
  }

  const LatentCache& cache() const { return cache_; }
  const Mirror<float>& tokens() const { return tokens_; }
  AttentionRows rows(const Mirror<std::int32_t>& positions, const Mirror<std::int32_t>& sequences) const {
    return {positions.size(), positions.kernels(), sequences.kernels(), tables_.kernels(), max_blocks_};
  }
  const float* latent(std::int64_t sequence, std::int64_t position) const {
    return latents_.data() + (sequence * length_ + position) * shape_.kv_rank;
  }
  const float* rotated(std::int64_t sequence, std::int64_t position) const {
    return rotated_.data() + (sequence * length_ + position) * shape_.rope_dim;
  }

 private:
  Shape shape_;
  std::int64_t length_, max_blocks_;
  std::vector<float> latents_, rotated_;
  Mirror<float> tokens_;
  LatentCache cache_;
  Mirror<std::int32_t> tables_;
};

// Where one query and its keys and values lie on the host.
struct DefinedHead {
  const float* plain;
  std::int64_t plain_dim;
  const float* rotated;
  std::int64_t rope_dim;
  std::int64_t value_dim;
};

// The definition in latent_attention.hpp, with scalar arithmetic. key(j), rotated_key(j), value(j): of position j.
template <class Key, class Rotated, class Value>
std::vector<float> defined(const DefinedHead& head, std::int64_t context, float scale, const Key& key,
                           const Rotated& rotated_key, const Value& value) {
  std::vector<float> scores;
  for (std::int64_t j = 0; j < context; ++j) {
    float score = 0.0F;
    for (std::int64_t d = 0; d < head.plain_dim; ++d) {
      score = std::fma(head.plain[d], key(j)[d], score);
    }
    for (std::int64_t d = 0; d < head.rope_dim; ++d) {
      score = std::fma(head.rotated[d], rotated_key(j)[d], score);
    }
    scores.push_back(scale * score);
  }
  const float top = *std::max_element(scores.begin(), scores.end());
  std::vector<float> partials(16, 0.0F);
  std::vector<float> out(at(head.value_dim), 0.0F);
  for (std::int64_t j = 0; j < context; ++j) {
    const float e = metro::portable::exp_of(scores[at(j)] - top);
    partials[at(j % 16)] = partials[at(j % 16)] + e;
    for (std::int64_t d = 0; d < head.value_dim; ++d) {
      out[at(d)] = std::fma(e, value(j)[d], out[at(d)]);
    }
  }
  for (float& number : out) {
    number = number / tree(partials);
  }
  return out;
}

// Queries [rows, num_heads, width] whose parts lie as in a row [plain | rotated] per head.
metro::LatentQueries queries_of(const Shape& shape, const Mirror<float>& q, std::int64_t plain_dim, float scale) {
  const std::int64_t head = plain_dim + shape.rope_dim;
  return {{q.kernels(), shape.num_heads * head, head},
          {q.kernels() + plain_dim, shape.num_heads * head, head},
          shape.num_heads,
          scale};
}

std::vector<float> slice(const std::vector<float>& values, std::int64_t first, std::int64_t count) {
  return {values.begin() + first, values.begin() + first + count};
}

}  // namespace

TEST_CASE("absorbed attention follows its definition bit for bit for every block size and shape, padding gives zeros") {
  const Shape shape =
      GENERATE(Shape{1, 8, 4, 2, 4}, Shape{3, 36, 14, 12, 18}, Shape{17, 70, 8, 6, 8}, Shape{40, 128, 16, 64, 16});
  const std::int64_t block_tokens = GENERATE(1, 3, 16, 40);
  const Context context(shape, 70, block_tokens);
  const auto positions = mirror_of<std::int32_t>({0, 69, -1, 31, 32, 15});
  const auto sequences = mirror_of<std::int32_t>({0, 1, 99, 0, 1, 1});
  const std::int64_t head_width = shape.kv_rank + shape.rope_dim;
  const std::vector<float> q = random_floats(6 * shape.num_heads * head_width, 13);
  const auto queries = mirror_of(q);
  const auto scratch = mirror_of(std::vector<float>(at(metro::latent_scratch_floats(6, shape.num_heads, 70)), unset));
  const auto out = mirror_of(std::vector<float>(at(6 * shape.num_heads * shape.kv_rank), unset));

  metro::absorbed_attention(queries_of(shape, queries, shape.kv_rank, 0.2F), context.rows(positions, sequences),
                            context.cache(), {scratch.kernels(), 70}, out.kernels());

  const std::vector<float> computed = values_of(out);
  for (std::int64_t row = 0; row < 6; ++row) {
    const std::int64_t sequence = sequences[row];
    for (std::int64_t head = 0; head < shape.num_heads; ++head) {
      const float* of_head = q.data() + (row * shape.num_heads + head) * head_width;
      const auto latent = [&](std::int64_t j) { return context.latent(sequence, j); };
      const std::vector<float> expected =
          positions[row] < 0 ? std::vector<float>(at(shape.kv_rank), 0.0F)
                             : defined(
                                   {of_head, shape.kv_rank, of_head + shape.kv_rank, shape.rope_dim, shape.kv_rank},
                                   positions[row] + 1, 0.2F, latent,
                                   [&](std::int64_t j) { return context.rotated(sequence, j); }, latent);
      REQUIRE(same_bits(slice(computed, (row * shape.num_heads + head) * shape.kv_rank, shape.kv_rank), expected));
    }
  }
}

TEST_CASE("expanded attention follows its definition bit for bit however its rows are cut into tiles") {
  const Shape shape = GENERATE(Shape{1, 8, 4, 2, 4}, Shape{3, 36, 14, 12, 18}, Shape{2, 40, 64, 16, 100});
  const std::int64_t block_tokens = GENERATE(3, 16);
  const std::int64_t tile_rows = GENERATE(1, 4, 40);
  // 37 rows of sequence 1 from position 5 on, then the first of sequence 0; keys of sequence 1 come first.
  const Context context(shape, 42, block_tokens);
  std::vector<QueryTile> tiles;
  for (std::int64_t row = 0; row < 37; row += tile_rows) {
    tiles.push_back({static_cast<std::int32_t>(2 + row), static_cast<std::int32_t>(std::min(tile_rows, 37 - row)),
                     static_cast<std::int32_t>(5 + row), 1, 0});
  }
  tiles.push_back({39, 1, 0, 0, 42});
  const std::int64_t num_rows = 40;  // two before those of the tiles
  const std::int64_t key_stride = shape.nope_dim + 3;
  const std::int64_t value_stride = shape.value_dim + 1;
  const std::vector<float> keys = random_floats(43 * shape.num_heads * key_stride, 14);
  const std::vector<float> values = random_floats(43 * shape.num_heads * value_stride, 15);
  const std::int64_t head_width = shape.nope_dim + shape.rope_dim;
  const std::vector<float> q = random_floats(num_rows * shape.num_heads * head_width, 16);
  const auto queries = mirror_of(q);
  const auto keys_there = mirror_of(keys);
  const auto values_there = mirror_of(values);
  const auto tiles_there = mirror_of(tiles);
  const auto scratch = mirror_of(std::vector<float>(at(metro::latent_scratch_floats(38, shape.num_heads, 42)), unset));
  const std::int64_t out_width = shape.num_heads * shape.value_dim + 5;
  const auto out = mirror_of(std::vector<float>(at(num_rows * out_width), 7.0F));
  const auto no_rows = mirror_of<std::int32_t>({});

  metro::expanded_attention(
      queries_of(shape, queries, shape.nope_dim, 0.3F), {tiles_there.kernels(), std::ssize(tiles), 2},
      context.rows(no_rows, no_rows), context.cache(),
      {keys_there.kernels(), values_there.kernels(), shape.nope_dim, key_stride, shape.value_dim, value_stride},
      {scratch.kernels(), 42}, out.kernels(), out_width);

  const std::vector<float> computed = values_of(out);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t sequence = row == 39 ? 0 : 1;
    const std::int64_t position = row == 39 ? 0 : row + 3;
    const std::int64_t first_key = row == 39 ? 42 : 0;
    for (std::int64_t head = 0; head < shape.num_heads; ++head) {
      const float* of_head = q.data() + (row * shape.num_heads + head) * head_width;
      const auto place = [&](std::int64_t j) { return (first_key + j) * shape.num_heads + head; };
      const std::vector<float> expected =
          row < 2 ? std::vector<float>(at(shape.value_dim), 7.0F)
                  : defined(
                        {of_head, shape.nope_dim, of_head + shape.nope_dim, shape.rope_dim, shape.value_dim},
                        position + 1, 0.3F, [&](std::int64_t j) { return keys.data() + place(j) * key_stride; },
                        [&](std::int64_t j) { return context.rotated(sequence, j); },
                        [&](std::int64_t j) { return values.data() + place(j) * value_stride; });
      REQUIRE(same_bits(slice(computed, row * out_width + head * shape.value_dim, shape.value_dim), expected));
    }
  }
}

TEST_CASE("absorbed attention agrees with softmax attention over latents in double precision") {
  const Shape shape = {2, 64, 16, 16, 16};
  const Context context(shape, 300, 16);
  const auto positions = mirror_of<std::int32_t>({299});
  const auto sequences = mirror_of<std::int32_t>({1});
  const std::vector<float> q = random_floats(2 * 80, 17);
  const auto queries = mirror_of(q);
  const auto scratch = mirror_of(std::vector<float>(at(metro::latent_scratch_floats(1, 2, 300)), unset));
  const auto out = mirror_of(std::vector<float>(2 * 64, unset));

  metro::absorbed_attention(queries_of(shape, queries, 64, 0.5F), context.rows(positions, sequences), context.cache(),
                            {scratch.kernels(), 300}, out.kernels());

  const std::vector<float> computed = values_of(out);
  for (std::int64_t head = 0; head < 2; ++head) {
    std::vector<double> exact(64, 0.0);
    double sum = 0.0;
    for (std::int64_t j = 0; j < 300; ++j) {
      double score = 0.0;
      for (std::int64_t d = 0; d < 80; ++d) {
        const float key = d < 64 ? context.latent(1, j)[d] : context.rotated(1, j)[d - 64];
        score += static_cast<double>(q[at(head * 80 + d)]) * static_cast<double>(key);
      }
      const double e = std::exp(0.5 * score);
      sum += e;
      for (std::int64_t d = 0; d < 64; ++d) {
        exact[at(d)] += e * static_cast<double>(context.latent(1, j)[d]);
      }
    }
    for (std::int64_t d = 0; d < 64; ++d) {
      // A weighted mean of values below 1; 300 + 80 roundings of 2^-24 at most, mostly cancelling.
      CHECK(static_cast<double>(computed[at(head * 64 + d)]) == Approx(exact[at(d)] / sum).margin(1e-5));
    }
  }
}

TEST_CASE("latents are read back as they were written, by position") {
  const Shape shape = {1, 5, 4, 2, 4};
  const Context context(shape, 20, 3);
  const auto no_rows = mirror_of<std::int32_t>({});
  const auto out = mirror_of(std::vector<float>(7 * 5, unset));

  metro::read_latents(context.cache(), context.rows(no_rows, no_rows), 1, 11, 7, out.kernels());

  CHECK(same_bits(values_of(out), std::vector<float>(context.latent(1, 11), context.latent(1, 11) + 7 * 5)));
}

TEST_CASE("what is written of a token is its latent and the rotated key once, and padding writes nothing") {
  const LatentCache shape = {nullptr, 4, 3, 2};
  const auto tokens = mirror_of(std::vector<float>(3 * 4 * 5, 0.0F));
  const auto latents = mirror_of<float>({1, 2, 3, 4, 5, 6});
  const auto rotated = mirror_of<float>({7, 8, 9, 10});
  const auto positions = mirror_of<std::int32_t>({-1, 6});  // second block of the sequence, third token
  const auto sequences = mirror_of<std::int32_t>({0, 1});
  const auto tables = mirror_of<std::int32_t>({0, 1, 1, 2});

  metro::write_latents(latents.kernels(), rotated.kernels(),
                       {2, positions.kernels(), sequences.kernels(), tables.kernels(), 2},
                       {tokens.kernels(), shape.block_tokens, shape.kv_rank, shape.rope_dim});

  std::vector<float> expected(3 * 4 * 5, 0.0F);
  const std::vector<float> token = {4, 5, 6, 9, 10};
  std::copy(token.begin(), token.end(), expected.begin() + (2 * 4 + 2) * 5);
  CHECK(values_of(tokens) == expected);
}

TEST_CASE("linear layers of heads are those of one head each, for every number of rows") {
  const metro::StoredType type = GENERATE(metro::StoredType::bf16, metro::StoredType::f32);
  const std::int64_t num_rows = GENERATE(0, 1, 7, 9, 33);
  constexpr std::int64_t num_heads = 3, out = 40, in = 14, head_stride = 20, row_stride = 70;
  Numbers numbers(18);
  std::vector<metro::test::Weights> heads;
  std::vector<std::byte> packed;
  for (std::int64_t head = 0; head < num_heads; ++head) {
    heads.push_back(metro::test::random_weights(type, out, in, numbers));
    const auto bytes = std::as_const(heads.back().memory).span();
    packed.insert(packed.end(), bytes.begin(), bytes.end());
  }
  const auto memory = mirror_of(packed);
  const std::vector<float> x = random_floats(num_rows * row_stride + 1, 19);
  const auto inputs = mirror_of(x);
  const auto y = mirror_of(std::vector<float>(at(num_rows * num_heads * out), unset));

  metro::linear_of_heads({inputs.kernels(), row_stride, head_stride}, num_rows,
                         {memory.kernels(), type, num_heads, out, in}, y.kernels());

  const std::vector<float> computed = values_of(y);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t head = 0; head < num_heads; ++head) {
      for (std::int64_t n = 0; n < out; ++n) {
        const float expected = metro::test::chain(x.data() + row * row_stride + head * head_stride, heads[at(head)], n);
        REQUIRE(computed[at((row * num_heads + head) * out + n)] == expected);
      }
    }
  }
}

TEST_CASE("kernels of latent attention without rows do nothing, and impossible shapes are bugs") {
  const LatentCache cache = {nullptr, 16, 8, 2};
  const LatentCache no_blocks = {nullptr, 0, 8, 2};
  const metro::LatentQueries queries = {{}, {}, 2, 1.0F};

  metro::write_latents(nullptr, nullptr, {}, cache);
  metro::absorbed_attention(queries, {}, cache, {}, nullptr);
  metro::expanded_attention(queries, {}, {}, cache, {}, {}, nullptr, 0);

  CHECK_THROWS_AS(metro::absorbed_attention(queries, {}, no_blocks, {}, nullptr), metro::Bug);
  for (const metro::StoredType type : {metro::StoredType::int8, metro::StoredType::fp8, metro::StoredType::mxfp4}) {
    CHECK_THROWS_AS(metro::linear_of_heads({}, 0, {nullptr, type, 1, 1, 1}, nullptr), metro::Bug);
  }
}
