// The forms of linear() and expert_ffn() on a CPU: every SIMD level and every number of threads gives the same bits.
#include "base/error.hpp"
#include "kernel_data.hpp"
#include "kernels/cpu/team.hpp"
#include "kernels/cpu_settings.hpp"
#include "kernels/experts.hpp"
#include "kernels/linear.hpp"
#include "kernels/memory_speed.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

using metro::ExpertWork;
using metro::SimdLevel;
using metro::StoredType;
using metro::test::Array;
using metro::test::chain;
using metro::test::inputs_for;
using metro::test::Numbers;
using metro::test::part;
using metro::test::random_weights;
using metro::test::same_bits;
using metro::test::Weights;

namespace {

std::vector<SimdLevel> levels_here() {
  std::vector<SimdLevel> levels = {SimdLevel::scalar};
  for (const SimdLevel level : {SimdLevel::avx2, SimdLevel::avx512}) {
    if (level <= metro::best_simd_level()) {
      levels.push_back(level);
    }
  }
  return levels;
}

// Sets level and threads; the former ones return at the end of the test.
class Settings {
 public:
  Settings() = default;
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;
  ~Settings() {
    metro::set_simd_level(level_);
    metro::set_num_kernel_threads(num_threads_);
  }

 private:
  SimdLevel level_ = metro::simd_level();
  std::int64_t num_threads_ = metro::num_kernel_threads();
};

}  // namespace

TEST_CASE(
    "every SIMD level gives the chain of fused multiply-adds, bit for bit, for every number of rows and threads") {
  const Settings settings;
  const StoredType type =
      GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  // More than one piece of a panel, with an odd end; two whole panels and a part of one.
  const std::int64_t in = inputs_for(type, GENERATE(1, 2, 277));
  const std::int64_t out = GENERATE(32, 67);
  const std::int64_t most_rows = 51;
  Numbers numbers(1);
  const Weights weights = random_weights(type, out, in, numbers, out == 67);
  const Array<float> x = numbers.array(most_rows * in);
  std::vector<float> expected;
  for (std::int64_t r = 0; r < most_rows; ++r) {
    for (std::int64_t n = 0; n < out; ++n) {
      expected.push_back(chain(x.span().data() + r * in, weights, n));
    }
  }
  for (const SimdLevel level : levels_here()) {
    metro::set_simd_level(level);
    for (std::int64_t num_rows = 1; num_rows <= most_rows; ++num_rows) {
      metro::set_num_kernel_threads(1 + num_rows % 3, 1);
      Array<float> y = numbers.array(num_rows * out + 1);
      const float behind = y[num_rows * out];

      metro::linear(x.data(), num_rows, weights.packed, y.data());

      CAPTURE(name_of(level), num_rows);
      REQUIRE(
          same_bits(part(y, 0, num_rows * out), std::span(expected).first(static_cast<std::size_t>(num_rows * out))));
      REQUIRE(y[num_rows * out] == behind);
    }
  }
}

TEST_CASE("experts give the same bits on every SIMD level and for every number of threads") {
  const Settings settings;
  const StoredType type =
      GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  const std::int64_t width = inputs_for(type, 150);
  const std::int64_t hidden_width = inputs_for(type, 70);
  Numbers numbers(2);
  std::vector<Weights> matrices;
  std::vector<ExpertWork> work;
  std::int64_t num_rows = 0;
  for (const std::int64_t rows : {1, 0, 13, 2, 100, 7}) {
    matrices.push_back(random_weights(type, hidden_width, width, numbers));
    matrices.push_back(random_weights(type, hidden_width, width, numbers));
    matrices.push_back(random_weights(type, width, hidden_width, numbers));
    const std::size_t last = matrices.size() - 1;
    work.push_back({{matrices[last - 2].packed, matrices[last - 1].packed, matrices[last].packed}, num_rows, rows});
    num_rows += rows;
  }
  const Array<float> x = numbers.array(num_rows * width);
  Array<float> hidden("hidden", num_rows * hidden_width);
  Array<float> expected("expected", num_rows * width);
  metro::set_simd_level(SimdLevel::scalar);
  metro::set_num_kernel_threads(1);
  metro::expert_ffn(work, x.data(), hidden.data(), expected.data());

  for (const SimdLevel level : levels_here()) {
    for (const std::int64_t num_threads : {1, 2, 3, 8, 40}) {
      metro::set_simd_level(level);
      metro::set_num_kernel_threads(num_threads, 1);
      Array<float> y("y", num_rows * width);

      metro::expert_ffn(work, x.data(), hidden.data(), y.data());

      CAPTURE(name_of(level), num_threads);
      CHECK(same_bits(y.span(), expected.span()));
    }
  }
}

TEST_CASE("the shares of all threads are every strip of every block of rows once") {
  const std::vector<std::int64_t> rows_of_items = {1, 0, 200, 48, 3};
  const auto rows_of = [&](std::int64_t item) { return rows_of_items[static_cast<std::size_t>(item)]; };
  const auto num_items = static_cast<std::int64_t>(rows_of_items.size());
  const std::int64_t strips = 5;
  const std::int64_t num_threads = GENERATE(1, 2, 3, 7, 64);
  std::vector<std::vector<std::int64_t>> seen;  // item, row, strip

  for (std::int64_t thread_idx = 0; thread_idx < num_threads; ++thread_idx) {
    const metro::cpu::Share share(num_items, rows_of, strips, thread_idx, num_threads);
    share.for_each(num_items, rows_of, [&](std::int64_t item, const metro::cpu::StripRange& range) {
      for (std::int64_t row = range.first_row; row < range.first_row + range.num_rows; ++row) {
        for (std::int64_t strip = range.first; strip < range.last; ++strip) {
          seen.push_back({item, row, strip});
        }
      }
    });
  }

  std::vector<std::vector<std::int64_t>> all;
  for (std::int64_t item = 0; item < num_items; ++item) {
    for (std::int64_t row = 0; row < rows_of(item); ++row) {
      for (std::int64_t strip = 0; strip < strips; ++strip) {
        all.push_back({item, row, strip});
      }
    }
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == all);
}

TEST_CASE("SIMD levels have names, auto is the best of this CPU and another name is refused") {
  const Settings settings;
  CHECK(metro::simd_level_of("auto") == metro::best_simd_level());
  for (const SimdLevel level : {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512}) {
    CHECK(metro::simd_level_of(name_of(level)) == level);
  }
  metro::test::expect_error(metro::ExitCode::usage, {"sse9", "auto, avx512, avx2 or scalar"},
                            [] { metro::simd_level_of("sse9"); });
  CHECK_THROWS_AS(metro::set_num_kernel_threads(0), metro::Bug);
}

TEST_CASE("reading memory adds up every word once, in any order and with any number of threads") {
  const Settings settings;
  const std::int64_t num_words = GENERATE(0, 1, 31, 32, 1000);
  std::vector<std::uint64_t> words(static_cast<std::size_t>(num_words));
  std::iota(words.begin(), words.end(), std::uint64_t{1} << 60);
  const std::uint64_t expected = std::accumulate(words.begin(), words.end(), std::uint64_t{0});

  for (const std::int64_t num_threads : {1, 3}) {
    metro::set_num_kernel_threads(num_threads, 1);
    for (const std::int64_t num_streams : {1, 4, 8}) {
      CHECK(metro::sum_of_words(words.data(), num_words, {64, num_streams}) == expected);
    }
  }
}
