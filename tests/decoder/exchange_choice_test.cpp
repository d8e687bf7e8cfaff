// What decode.exchange = "auto" makes of measurements.
#include "decoder/exchange_choice.hpp"
#include "decoder/exchange_trial.hpp"
#include "transport/agree.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <array>

using metro::border_of;
using metro::ExchangeMode;
using metro::ExchangeTimes;

TEST_CASE("the border lies where allgather stops being the faster way") {
  const std::array<ExchangeTimes, 4> times{{{8, 10, 20}, {16, 15, 20}, {32, 30, 25}, {64, 80, 40}}};

  CHECK(border_of(times) == 16);
}

TEST_CASE("one way that always wins is always taken") {
  CHECK(border_of(std::array<ExchangeTimes, 2>{{{8, 10, 20}, {16, 15, 20}}}) == metro::unlimited_rows);
  CHECK(border_of(std::array<ExchangeTimes, 2>{{{8, 21, 20}, {16, 25, 20}}}) == 0);
}

TEST_CASE("a tie goes to allgather, and so does a job that measured nothing") {
  CHECK(border_of(std::array<ExchangeTimes, 2>{{{8, 10, 20}, {16, 20, 20}}}) == metro::unlimited_rows);
  CHECK(border_of({}) == metro::unlimited_rows);
}

TEST_CASE("two levels are measured against one by the modes that may be used, and the way back") {
  const ExchangeTimes one{16, 10, 40};
  const ExchangeTimes two{16, 15, 10};

  CHECK(metro::levels_ratio(one, two, ExchangeMode::allgather) == Approx((15.0 + 10) / (10 + 40)));
  CHECK(metro::levels_ratio(one, two, ExchangeMode::ids_then_alltoall) == Approx((10.0 + 10) / (40 + 40)));
  CHECK(metro::levels_ratio(one, two, ExchangeMode::automatic) == Approx((10.0 + 10) / (10 + 40)));
}

TEST_CASE("one odd measurement among many does not move the border") {
  // allgather wins up to 32 rows but for a hiccup at 16, which costs less than giving up the others.
  const std::array<ExchangeTimes, 5> times{{{8, 10, 20}, {16, 25, 20}, {32, 30, 60}, {64, 80, 40}, {128, 160, 50}}};

  CHECK(border_of(times) == 32);
}

TEST_CASE("all ranks agree on the border, by the slowest rank at every number of rows") {
  const auto transport = metro::make_mpi_transport(60.0);
  const std::int64_t rank = transport->rank();
  const std::int64_t size = transport->size();
  // Alone, rank 0 would always allgather and every other never; allgather costs most on the last rank from 4 rows a
  // rank on, the ids on rank 0.
  const auto timer = [&](std::int64_t rows_per_rank) -> ExchangeTimes {
    const std::int64_t allgather_ns = rank == size - 1 ? 100 * rows_per_rank : 10;
    const std::int64_t ids_ns = rank == 0 ? 300 : 5;
    return {rows_per_rank * size, allgather_ns, ids_ns};
  };

  const metro::ExchangeChoice choice = metro::choose_exchange(*transport, 24, timer, 1e9);

  REQUIRE(choice.times.size() == 6);  // 1, 2, 4, 8, 16, 24 rows a rank
  CHECK(choice.times[5].num_rows == 24 * size);
  CHECK(choice.times[5].allgather_ns == 2400);
  CHECK(choice.times[5].ids_ns == 300);
  CHECK(choice.most_allgather_rows == 2 * size);
  for (const std::int64_t value : metro::gather_integers(*transport, choice.most_allgather_rows)) {
    CHECK(value == choice.most_allgather_rows);
  }
}

TEST_CASE("measuring stops when it would take too long, on all ranks at once") {
  const auto transport = metro::make_mpi_transport(60.0);
  std::int64_t num_measured = 0;
  const auto timer = [&](std::int64_t rows_per_rank) -> ExchangeTimes {
    ++num_measured;
    return {rows_per_rank, 20, 10};
  };

  const metro::ExchangeChoice choice = metro::choose_exchange(*transport, 1024, timer, 0.0);

  CHECK(num_measured == 1);
  CHECK(choice.times.size() == 1);
  CHECK(choice.most_allgather_rows == 0);
}

TEST_CASE("a trial exchanges its rows both ways, and sends fewer bytes by ids where few ranks need a row") {
  const auto transport = metro::make_mpi_transport(60.0);
  metro::ModelSpec spec;
  spec.hidden_size = 64;
  spec.moe = {.num_experts = 16, .top_k = 1, .intermediate_size = 4};
  const metro::Placement placement =
      metro::place_trivial(1, 16, transport->size(), metro::slots_for_replication(16, transport->size(), 1.0));
  const auto exchange = metro::make_device_exchange(*transport);
  metro::ExchangeTrial trial(spec, placement, {}, *exchange, 8);
  trial.set_rows(8, 3);

  CHECK(trial.run(metro::ExchangeMode::allgather) >= 0);
  const std::int64_t allgather_bytes = trial.bytes_sent();
  CHECK(trial.run(metro::ExchangeMode::ids_then_alltoall) >= 0);
  const std::int64_t ids_bytes = trial.bytes_sent();

  const std::int64_t num_others = transport->size() - 1;
  CHECK(allgather_bytes == num_others * 8 * (64 + 1) * 4);
  // With one choice a row goes to at most one rank.
  CHECK(ids_bytes <= num_others * (8 * 2 + 16) + 8 * 64 * 4);
  CHECK(ids_bytes >= num_others * (8 * 2 + 16));
}
