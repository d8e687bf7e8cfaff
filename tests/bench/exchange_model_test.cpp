// The model of both exchanges against closed forms and enumeration.
#include "bench/exchange_model.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>

using metro::ExchangeShape;
using metro::Link;

namespace {

const ExchangeShape qwen{2048, 8, 128, 768};
const Link link{"test", 1e-5, 1e9, 1e11, {}};

// Over all sets of top_k experts: ranks other than 0 that hold one of them, where rank r holds experts [r*E/R, ..).
double enumerated_other_ranks(std::int64_t num_experts, std::int64_t top_k, std::int64_t num_ranks) {
  std::int64_t num_sets = 0;
  std::int64_t num_others = 0;
  for (std::uint32_t set = 0; set < (1U << num_experts); ++set) {
    if (std::popcount(set) != top_k) {
      continue;
    }
    ++num_sets;
    const std::int64_t per_rank = num_experts / num_ranks;
    for (std::int64_t rank = 1; rank < num_ranks; ++rank) {
      const std::uint32_t of_rank = ((1U << per_rank) - 1U) << (rank * per_rank);
      num_others += (set & of_rank) != 0 ? 1 : 0;
    }
  }
  return static_cast<double>(num_others) / static_cast<double>(num_sets);
}

}  // namespace

TEST_CASE("the ranks that a row needs are those of all sets of experts, on average") {
  for (const std::int64_t top_k : {1, 2, 3, 5, 8, 12}) {
    for (const std::int64_t num_ranks : {1, 2, 3, 4, 6, 12}) {
      CAPTURE(top_k, num_ranks);
      CHECK(metro::expected_other_ranks({1, top_k, 12, 1}, num_ranks) ==
            Approx(enumerated_other_ranks(12, top_k, num_ranks)).margin(1e-12));
    }
  }
}

TEST_CASE("one choice goes to one rank, and all experts together to every rank") {
  for (const std::int64_t num_ranks : {1, 2, 8, 72}) {
    const auto ranks = static_cast<double>(num_ranks);
    CHECK(metro::expected_other_ranks({2048, 1, 128, 768}, num_ranks) == Approx((ranks - 1) / ranks).margin(1e-12));
    CHECK(metro::expected_other_ranks({2048, 128, 128, 768}, num_ranks) == ranks - 1);
  }
}

TEST_CASE("bytes of an allgather and of ids follow from their formulas") {
  CHECK(metro::allgather_bytes(qwen, 8, 64) == Approx(64 * (2048 * 4 + 8 * 4) * 7.0 / 8.0));
  // One choice of a row: it stays with its owner one time in eight.
  CHECK(metro::ids_bytes({2048, 1, 128, 768}, 8, 64) ==
        Approx(64 * 2 * 7.0 / 8.0 + 7 * 16 + 64 * 2048 * 4 * (7.0 / 8.0) / 8.0));
  CHECK(metro::ids_bytes({2048, 1, 65537, 768}, 8, 64) - metro::ids_bytes({2048, 1, 65536, 768}, 8, 64) ==
        Approx(64 * 2 * 7.0 / 8.0).margin(1e-6));
}

TEST_CASE("one rank exchanges nothing, in no time, and has no crossover") {
  CHECK(metro::allgather_bytes(qwen, 1, 64) == 0.0);
  CHECK(metro::ids_bytes(qwen, 1, 64) == 0.0);
  CHECK(metro::allgather_seconds(qwen, 1, 64, link) == 0.0);
  CHECK(metro::ids_seconds(qwen, 1, 64, link) == 0.0);
  CHECK(std::isinf(metro::crossover_rows(qwen, 1, link)));
}

TEST_CASE("at the crossover both modes take the same time, and around it the one or the other is faster") {
  for (const std::int64_t num_ranks : {2, 8, 64}) {
    const double rows = metro::crossover_rows(qwen, num_ranks, link);
    CAPTURE(num_ranks, rows);

    CHECK(metro::ids_seconds(qwen, num_ranks, rows, link) ==
          Approx(metro::allgather_seconds(qwen, num_ranks, rows, link)));
    CHECK(metro::ids_seconds(qwen, num_ranks, 0.5 * rows, link) >
          metro::allgather_seconds(qwen, num_ranks, 0.5 * rows, link));
    CHECK(metro::ids_seconds(qwen, num_ranks, 2.0 * rows, link) <
          metro::allgather_seconds(qwen, num_ranks, 2.0 * rows, link));
  }
}

TEST_CASE("there is no crossover when every rank needs every row and ids are as long as in an allgather") {
  CHECK(std::isinf(metro::crossover_rows({64, 70000, 70000, 64}, 4, link)));
  CHECK_FALSE(std::isinf(metro::crossover_rows({64, 128, 128, 64}, 4, link)));  // ids are half as long
}

TEST_CASE("experts in use: top_k of one row, all of very many") {
  CHECK(metro::expected_active(qwen, 1) == Approx(8));
  CHECK(metro::expected_active(qwen, 2) == Approx(8 + 8 * 120.0 / 128.0));
  CHECK(metro::expected_active(qwen, 1e6) == Approx(128));
  // Three matrices in bf16 of each of 128 experts, shared by four ranks.
  CHECK(metro::weight_seconds(qwen, 4, 1e6, link) == Approx(128.0 / 4 * 3 * 2048 * 768 * 2 / 1e11));
}

TEST_CASE("the rows for which an allgather is cheap are those found by trying all") {
  const ExchangeShape small{64, 2, 16, 64};
  for (const double latency_s : {0.0, 2e-7, 4e-7, 1e-3}) {
    const Link fast{"test", latency_s, 2e10, 1e11, {}};
    metro::RowRange expected;
    for (std::int64_t rows = 1; rows < 3000; ++rows) {
      const auto number = static_cast<double>(rows);
      if (metro::allgather_seconds(small, 4, number, fast) <= 0.8 * metro::weight_seconds(small, 4, number, fast)) {
        expected = {expected.first == 0 ? rows : expected.first, rows};
      }
    }

    const metro::RowRange found = metro::rows_of_cheap_allgather(small, 4, fast, 0.8);

    CAPTURE(latency_s);
    CHECK(found.first == expected.first);
    CHECK(found.last == expected.last);
    CHECK((latency_s < 1e-3 ? found.last > 0 : found.last == 0));
  }
}
