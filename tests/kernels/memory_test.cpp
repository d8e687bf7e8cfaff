#include "kernel_data.hpp"
#include "kernels/buffer.hpp"
#include "kernels/cpu_settings.hpp"
#include "kernels/memory_speed.hpp"
#include "kernels/packed_matrix.hpp"
#include "kernels/queue.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

using metro::Buffer;
using metro::ExitCode;
using metro::RawBuffer;
using metro::StoredType;
using metro::test::expect_error;

namespace {

std::vector<std::byte> bytes_of(const RawBuffer& buffer) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.num_bytes()));
  metro::copy_bytes_to_host(bytes.data(), buffer.data(), buffer.num_bytes());
  return bytes;
}

}  // namespace

TEST_CASE("a buffer is zeroed and aligned to 64 bytes") {
  const std::int64_t num_bytes = GENERATE(1, 63, 4096, (1 << 20) + 1, 5 << 20);

  const RawBuffer buffer("rows", num_bytes);

  CHECK(buffer.num_bytes() == num_bytes);
  CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
  CHECK(bytes_of(buffer) == std::vector<std::byte>(static_cast<std::size_t>(num_bytes), std::byte{0}));
}

TEST_CASE("a buffer whose content does not matter is aligned and writable like any other") {
  const std::int64_t num_bytes = GENERATE(0, 1, (5 << 20) + 1);

  const RawBuffer buffer("weights", num_bytes, metro::FirstContent::unspecified);
  const std::vector<std::byte> sevens(static_cast<std::size_t>(num_bytes), std::byte{7});
  metro::copy_bytes_from_host(buffer.data(), sevens.data(), num_bytes);

  CHECK(buffer.num_bytes() == num_bytes);
  CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
  CHECK(bytes_of(buffer) == sevens);
}

TEST_CASE("a buffer may be empty and keeps its memory when it is moved") {
  const RawBuffer empty("empty", 0);
  const std::vector<float> values{5.0F, 6.0F, 7.0F};
  Buffer<float> first("first", 3);
  metro::copy_from_host<float>(first.data(), values);
  const float* const memory = first.data();

  Buffer<float> second;
  second = std::move(first);

  CHECK(empty.data() == nullptr);
  CHECK(second.data() == memory);
  CHECK(second.size() == 3);
  CHECK(second.num_bytes() == 12);
  std::vector<float> kept(3);
  metro::copy_to_host<float>(kept, second.data());
  CHECK(kept == values);
}

TEST_CASE("too large a buffer is an error that names it and its size") {
  const std::int64_t num_bytes = std::int64_t{1} << 50;

  expect_error(ExitCode::machine, {"cannot allocate", "1125899906842624 bytes", "KV cache"},
               [&] { const RawBuffer buffer("KV cache", num_bytes); });
}

TEST_CASE("a buffer of negative size is a bug") {
  CHECK_THROWS_AS(RawBuffer("rows", -1), metro::Bug);
}

namespace {

// Every element of the source another value, and where the layout says that it lies in the packed matrix.
template <class T>
void check_packed(StoredType type, std::int64_t out, std::int64_t in) {
  std::vector<T> source;
  for (std::int64_t i = 0; i < out * in; ++i) {
    source.push_back(static_cast<T>(i + 1));
  }
  std::vector<std::byte> packed(static_cast<std::size_t>(metro::packed_bytes(type, out, in)), std::byte{0xff});

  const metro::PackedMatrix matrix = metro::pack(type, out, in, source.data(), packed.data());

  CHECK(matrix.data == packed.data());
  CHECK((matrix.out == out && matrix.in == in && matrix.type == type));
  std::vector<T> expected(packed.size() / sizeof(T), 0);
  for (std::int64_t n = 0; n < out; ++n) {
    for (std::int64_t k = 0; k < in; ++k) {
      expected[static_cast<std::size_t>(((n / 32) * in + k) * 32 + n % 32)] = static_cast<T>(n * in + k + 1);
    }
  }
  CHECK(std::memcmp(packed.data(), expected.data(), packed.size()) == 0);
}

}  // namespace

TEST_CASE("packed weights lie in panels of 32 columns, reduction index first, missing columns 0") {
  const std::int64_t out = GENERATE(1, 31, 32, 33, 65, 96);
  const std::int64_t in = GENERATE(1, 7, 8, 18, 33, 64, 107);
  const auto level = GENERATE(metro::SimdLevel::scalar, metro::best_simd_level());
  CAPTURE(out, in, metro::name_of(level));
  metro::set_simd_level(level);

  check_packed<std::uint16_t>(StoredType::bf16, out, in);
  check_packed<std::uint32_t>(StoredType::f32, out, in);
  metro::set_simd_level(metro::best_simd_level());
}

TEST_CASE("a matrix may be packed in pieces of whole panels") {
  const std::int64_t in = 40, out = 70;
  std::vector<std::uint16_t> source;
  for (std::int64_t i = 0; i < out * in; ++i) {
    source.push_back(static_cast<std::uint16_t>(i * 7));
  }
  std::vector<std::uint16_t> whole(static_cast<std::size_t>(metro::packed_bytes(StoredType::bf16, out, in) / 2));
  std::vector<std::uint16_t> pieces(whole.size());

  metro::pack(StoredType::bf16, out, in, source.data(), whole.data());
  metro::pack(StoredType::bf16, 64, in, source.data(), pieces.data());
  metro::pack(StoredType::bf16, 6, in, source.data() + 64 * in, pieces.data() + 64 * in);

  CHECK(pieces == whole);
  CHECK_THROWS_AS(metro::pack(StoredType::bf16, 1, 1, source.data(), pieces.data() + 1), metro::Bug);
}

TEST_CASE("packing float weights keeps every bit") {
  const std::vector<std::uint32_t> source = {0x7fc00001U, 0x80000000U, 0x00000001U,
                                             0x3f800000U, 0xff800000U, 0x12345678U};
  std::vector<std::uint32_t> packed(static_cast<std::size_t>(metro::packed_bytes(StoredType::f32, 2, 3) / 4));

  metro::pack(StoredType::f32, 2, 3, source.data(), packed.data());

  CHECK(packed.size() == 3 * 32);
  CHECK(packed[0] == source[0]);
  CHECK(packed[1] == source[3]);
  CHECK(packed[64] == source[2]);
  CHECK(packed[65] == source[5]);
}

TEST_CASE("every panel of int8 weights is followed by the scales of its 32 columns, 0 for missing ones") {
  const std::int64_t out = GENERATE(1, 31, 32, 33, 65);
  const std::int64_t in = GENERATE(0, 1, 7, 16, 18, 33);
  std::vector<std::int8_t> source;
  for (std::int64_t i = 0; i < out * in; ++i) {
    source.push_back(static_cast<std::int8_t>(i % 255 - 127));
  }
  std::vector<float> scales;
  for (std::int64_t n = 0; n < out; ++n) {
    scales.push_back(static_cast<float>(n + 1));
  }
  std::vector<std::int8_t> packed(static_cast<std::size_t>(metro::packed_bytes(StoredType::int8, out, in)), 99);

  metro::pack(StoredType::int8, out, in, source.data(), {scales.data()}, packed.data());

  const std::int64_t panels = (out + 31) / 32;
  REQUIRE(std::ssize(packed) == panels * (32 * in + 128));
  std::vector<std::int8_t> expected(packed.size(), 0);
  for (std::int64_t n = 0; n < out; ++n) {
    std::int8_t* panel = expected.data() + n / 32 * (32 * in + 128);
    for (std::int64_t k = 0; k < in; ++k) {
      panel[k * 32 + n % 32] = source[static_cast<std::size_t>(n * in + k)];
    }
    std::memcpy(panel + 32 * in + n % 32 * 4, &scales[static_cast<std::size_t>(n)], 4);
  }
  CHECK(packed == expected);
}

TEST_CASE("every panel of fp8 weights is followed by a scale per 128 inputs, filled up to whole lines with 0") {
  const std::int64_t out = GENERATE(1, 33, 70);
  const std::int64_t in = GENERATE(0, 1, 128, 130);
  const std::int64_t row_blocks = (in + 127) / 128;
  const std::int64_t scale_bytes = in == 0 ? 0 : 64;
  std::vector<std::uint8_t> source;
  for (std::int64_t i = 0; i < out * in; ++i) {
    source.push_back(static_cast<std::uint8_t>(i % 251));
  }
  std::vector<float> scales;
  for (std::int64_t i = 0; i < (out + 31) / 32 * row_blocks; ++i) {
    scales.push_back(static_cast<float>(i + 1));
  }
  scales.push_back(77.0F);  // of no block
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(metro::packed_bytes(StoredType::fp8, out, in)), 99);

  metro::pack(StoredType::fp8, out, in, source.data(), {scales.data()}, packed.data());

  REQUIRE(std::ssize(packed) == (out + 31) / 32 * (32 * in + scale_bytes));
  std::vector<std::uint8_t> expected(packed.size(), 0);
  for (std::int64_t n = 0; n < out; ++n) {
    std::uint8_t* panel = expected.data() + n / 32 * (32 * in + scale_bytes);
    for (std::int64_t k = 0; k < in; ++k) {
      panel[k * 32 + n % 32] = source[static_cast<std::size_t>(n * in + k)];
    }
    for (std::int64_t block = 0; block < row_blocks; ++block) {
      std::memcpy(panel + 32 * in + 4 * block, &scales[static_cast<std::size_t>(n / 32 * row_blocks + block)], 4);
    }
  }
  CHECK(packed == expected);
}

TEST_CASE("a panel of mxfp4 has blocks of 32 inputs, columns j and j + 16 in one byte, and then their exponents") {
  const std::int64_t out = GENERATE(1, 17, 33, 64);
  const std::int64_t in = GENERATE(0, 32, 96);
  std::vector<std::uint8_t> source;
  for (std::int64_t i = 0; i < out * in / 2; ++i) {
    source.push_back(static_cast<std::uint8_t>(i * 89 % 253));
  }
  std::vector<std::int8_t> exponents(1);
  for (std::int64_t i = 0; i < out * in / 32; ++i) {
    exponents.push_back(static_cast<std::int8_t>(i % 200 - 120));
  }
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(metro::packed_bytes(StoredType::mxfp4, out, in)), 99);

  metro::pack(StoredType::mxfp4, out, in, source.data(), {nullptr, nullptr, exponents.data() + 1}, packed.data());

  REQUIRE(std::ssize(packed) == (out + 31) / 32 * 17 * in);
  std::vector<std::uint8_t> expected(packed.size(), 0);
  for (std::int64_t n = 0; n < out; ++n) {
    for (std::int64_t k = 0; k < in; ++k) {
      std::uint8_t* block = expected.data() + n / 32 * 17 * in + k / 32 * 544;
      const std::int64_t weight = n * in + k;
      const unsigned code =
          static_cast<unsigned>(source[static_cast<std::size_t>(weight / 2)]) >> (weight % 2 * 4) & 15U;
      std::uint8_t& pair = block[k % 32 * 16 + n % 16];
      pair = static_cast<std::uint8_t>(pair | code << (n % 32 < 16 ? 0U : 4U));
      block[512 + n % 32] = static_cast<std::uint8_t>(exponents[static_cast<std::size_t>(1 + weight / 32)]);
    }
  }
  CHECK(packed == expected);
}

TEST_CASE("int8 weights without scales, or others with them, are bugs") {
  const float scale = 1.0F;
  std::vector<std::byte> memory(1000);

  CHECK_THROWS_AS(metro::pack(StoredType::int8, 1, 1, memory.data(), memory.data()), metro::Bug);
  CHECK_THROWS_AS(metro::pack(StoredType::bf16, 1, 1, memory.data(), {&scale}, memory.data()), metro::Bug);
  CHECK_THROWS_AS(metro::pack(StoredType::fp8, 1, 1, memory.data(), memory.data()), metro::Bug);
  CHECK_THROWS_AS(metro::pack(StoredType::mxfp4, 1, 32, memory.data(), {&scale}, memory.data()), metro::Bug);
  const std::int8_t exponent = 0;
  CHECK_THROWS_AS(metro::pack(StoredType::mxfp4, 1, 16, memory.data(), {nullptr, nullptr, &exponent}, memory.data()),
                  metro::Bug);
}

TEST_CASE("reading threads sum the words that are theirs, also where the last round is not full") {
  const std::int64_t num_words = GENERATE(1, metro::num_reading_threads, 7 * metro::num_reading_threads + 5);
  std::vector<std::uint64_t> words(static_cast<std::size_t>(num_words));
  std::vector<std::uint64_t> expected(metro::num_reading_threads, 0);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = i * 0x9e3779b97f4a7c15U;
    expected[i % expected.size()] += words[i];
  }
  const Buffer<std::uint64_t> data("words", num_words);
  const Buffer<std::uint64_t> sums("sums", metro::num_reading_threads);
  metro::copy_from_host<std::uint64_t>(data.data(), words);

  metro::sum_words_by_threads(data.data(), num_words, sums.data());

  std::vector<std::uint64_t> found(expected.size());
  metro::copy_to_host<std::uint64_t>(found, sums.data());
  CHECK(found == expected);
}

TEST_CASE("only a device tells how much memory it has left, and no less than a buffer takes") {
  const std::optional<std::int64_t> before = metro::kernel_memory_room();
  const RawBuffer buffer("rows", 5 << 20);
  const std::optional<std::int64_t> after = metro::kernel_memory_room();

  CHECK(before.has_value() == !metro::kernels_use_host_memory());
  if (before) {
    CHECK(*before - *after >= 5 << 20);
  }
}
