// Both ways of exchanging decode rows, against the routing itself: rows say where they come from.
#include "decoder/allgather_exchange.hpp"
#include "decoder/decode_routing.hpp"
#include "decoder/ids_exchange.hpp"
#include "decoder/row_exchange.hpp"
#include "placement/placement.hpp"
#include "support/expect_error.hpp"
#include "support/kernel_memory.hpp"
#include "transport/agree.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>

using metro::ServedAssignment;

namespace {

constexpr std::int64_t hidden = 6;
constexpr std::int64_t top_k = 3;
constexpr std::int64_t num_experts = 10;
constexpr std::int64_t max_rows = 5;

metro::ModelSpec small_spec(std::int64_t experts = num_experts) {
  metro::ModelSpec spec;
  spec.hidden_size = hidden;
  spec.moe = {.num_experts = experts, .top_k = top_k, .intermediate_size = 4};
  return spec;
}

// Rank 1 of three has no rows.
std::int64_t rows_of(std::int64_t rank) {
  return rank % 3 == 1 ? 0 : 1 + 2 * rank % max_rows;
}

// Expert of choice k of a row among all rows.
std::int32_t expert_of(std::int64_t row, std::int64_t k) {
  return static_cast<std::int32_t>((row * 7 + k * (1 + row % 3)) % num_experts);
}

// The rows of all ranks of a job, those of one rank with their ids, and the routing that every rank makes of them.
struct Step {
  explicit Step(metro::Transport& transport)
      : spec(small_spec()),
        placement(metro::place_trivial(1, num_experts, transport.size(),
                                       metro::slots_for_replication(num_experts, transport.size(), 1.5))),
        maps{metro::ReplicaMap(placement.layer(0), num_experts, transport.size())},
        routing(spec, maps, {.decode = metro::RoutingPolicy::even}, transport.rank(), transport.size(), max_rows) {
    for (std::int64_t rank = 0; rank < transport.size(); ++rank) {
      first_row += rank < transport.rank() ? rows_of(rank) : 0;
      batch.rows_of_rank.push_back(rows_of(rank));
    }
    batch.token_ids.assign(static_cast<std::size_t>(rows_of(transport.rank())), 0);
    for (std::int64_t row = first_row; row < first_row + batch.num_rows(); ++row) {
      for (std::int64_t i = 0; i < hidden; ++i) {
        values.push_back(static_cast<float>(100 * row + i));
      }
      for (std::int64_t k = 0; k < top_k; ++k) {
        own_ids[(row - first_row) * top_k + k] = expert_of(row, k);
      }
    }
    own_ids.to_kernels(own_ids.size());
    rows = metro::test::kernel_copy(values);
  }

  metro::OwnRows own() const { return {rows.data(), batch.num_rows() * top_k, &own_ids, &own_weights}; }

  metro::ModelSpec spec;
  metro::Placement placement;
  std::vector<metro::ReplicaMap> maps;
  metro::DecodeRouting routing;
  metro::RowBatch batch;
  std::int64_t first_row = 0;
  std::vector<float> values;  // of the rows
  metro::Buffer<float> rows;
  metro::Mirror<std::int32_t> own_ids{"own ids", max_rows* top_k};
  metro::Mirror<float> own_weights{"own weights", max_rows* top_k};
};

// Both ways of exchanging.
struct Exchanges {
  Exchanges(const metro::ModelSpec& spec, metro::Transport& transport)
      : exchange(metro::make_device_exchange(transport)),
        rows(spec, *exchange, max_rows, transport.size() * max_rows * top_k, clock),
        allgather(spec, metro::AllgatherExchange::Content::rows_and_ids, *exchange, max_rows,
                  transport.size() * max_rows, clock),
        ids(spec, rows, *exchange, max_rows, clock) {}

  std::unique_ptr<metro::DeviceExchange> exchange;
  metro::PhaseClock clock;
  metro::RowExchange rows;
  metro::AllgatherExchange allgather;
  metro::IdsExchange ids;
};

// Serving rank of every assignment of all rows, straight from the router.
std::vector<std::int32_t> servers(const Step& step) {
  std::vector<std::int32_t> ids, row_to_rank;
  for (std::size_t rank = 0; rank < step.batch.rows_of_rank.size(); ++rank) {
    for (std::int64_t i = 0; i < step.batch.rows_of_rank[rank]; ++i) {
      for (std::int64_t k = 0; k < top_k; ++k) {
        ids.push_back(expert_of(std::ssize(row_to_rank), k));
      }
      row_to_rank.push_back(static_cast<std::int32_t>(rank));
    }
  }
  std::vector<std::int32_t> slots(ids.size());
  metro::StepRouter router(metro::RoutingPolicy::even, step.maps[0]);
  router.route(ids, top_k, row_to_rank, step.batch.step, 0, slots);
  std::transform(slots.begin(), slots.end(), slots.begin(),
                 [&](std::int32_t slot) { return step.maps[0].rank_of_slot(slot); });
  return slots;
}

}  // namespace

TEST_CASE("every way of exchanging brings each rank the rows that it serves, in one round and in several") {
  const bool by_ids = GENERATE(false, true);
  const std::int64_t num_rounds = GENERATE(1, 2, 7);
  const auto transport = metro::make_mpi_transport(60.0);
  Step step(*transport);
  Exchanges exchanges(step.spec, *transport);
  metro::DecodeExchange& exchange = by_ids ? static_cast<metro::DecodeExchange&>(exchanges.ids) : exchanges.allgather;

  exchange.gather(step.batch, step.own(), step.routing.expert_ids(step.batch));
  step.routing.route(0, step.batch);
  std::multiset<std::tuple<std::int64_t, std::int32_t>> served;  // row, expert
  bool rows_are_whole = true;
  for (std::int64_t round = 0; round < num_rounds; ++round) {
    std::vector<ServedAssignment> of_round;
    const float* base = exchange.bring({step.routing, 0, round, num_rounds, 7}, step.own(), of_round);
    for (const ServedAssignment& one : of_round) {
      const std::vector<float> row = metro::test::host_copy(base + one.row_offset, hidden);
      const auto origin = static_cast<std::int64_t>(row[0]) / 100;
      for (std::int64_t i = 0; i < hidden; ++i) {
        rows_are_whole = rows_are_whole && row[static_cast<std::size_t>(i)] == static_cast<float>(100 * origin + i);
      }
      served.emplace(origin, one.expert);
    }
  }

  std::multiset<std::tuple<std::int64_t, std::int32_t>> expected;
  const std::vector<std::int32_t> server_of = servers(step);
  for (std::int64_t i = 0; i < std::ssize(server_of); ++i) {
    if (server_of[static_cast<std::size_t>(i)] == transport->rank()) {
      expected.emplace(i / top_k, expert_of(i / top_k, i % top_k));
    }
  }
  CHECK(rows_are_whole);
  CHECK(served == expected);
}

TEST_CASE("an allgather sends every row to every rank, ids_then_alltoall each row once to each rank that serves it") {
  const auto transport = metro::make_mpi_transport(60.0);
  Step step(*transport);
  Exchanges exchanges(step.spec, *transport);
  const auto bytes_of = [&](metro::DecodeExchange& exchange) {
    const std::int64_t before = transport->bytes_sent();
    std::vector<ServedAssignment> served;
    exchange.gather(step.batch, step.own(), step.routing.expert_ids(step.batch));
    step.routing.route(0, step.batch);
    exchange.bring({step.routing, 0, 0, 1, 7}, step.own(), served);
    return transport->bytes_sent() - before;
  };

  const std::int64_t allgather_bytes = bytes_of(exchanges.allgather);
  const std::int64_t ids_bytes = bytes_of(exchanges.ids);

  const std::int64_t num_others = transport->size() - 1;
  const std::vector<std::int32_t> server_of = servers(step);
  std::set<std::tuple<std::int64_t, std::int32_t>> sent;  // row, rank
  for (std::int64_t i = step.first_row * top_k; i < (step.first_row + step.batch.num_rows()) * top_k; ++i) {
    sent.emplace(i / top_k, server_of[static_cast<std::size_t>(i)]);
  }
  const auto rows_sent = std::count_if(sent.begin(), sent.end(), [&](const auto& row_and_rank) {
    return std::get<1>(row_and_rank) != transport->rank();
  });
  CHECK(allgather_bytes == num_others * step.batch.num_rows() * (hidden + top_k) * 4);
  // Ids of two bytes; a header of 16 bytes to each rank; rows.
  CHECK(ids_bytes == num_others * step.batch.num_rows() * top_k * 2 + num_others * 16 + rows_sent * hidden * 4);
}

TEST_CASE("ids travel in two bytes where that suffices") {
  CHECK(metro::IdsExchange::id_bytes(2) == 2);
  CHECK(metro::IdsExchange::id_bytes(65536) == 2);
  CHECK(metro::IdsExchange::id_bytes(65537) == 4);
}

TEST_CASE("ids of more than two bytes arrive whole") {
  const auto transport = metro::make_mpi_transport(60.0);
  const metro::ModelSpec spec = small_spec(1 << 20);
  const auto device_exchange = metro::make_device_exchange(*transport);
  metro::PhaseClock clock;
  metro::RowExchange rows(spec, *device_exchange, 1, transport->size() * top_k, clock);
  metro::IdsExchange exchange(spec, rows, *device_exchange, 1, clock);
  metro::RowBatch batch;
  batch.rows_of_rank.assign(static_cast<std::size_t>(transport->size()), 1);
  batch.token_ids.assign(1, 0);
  const metro::Mirror<std::int32_t> own_ids("own ids", top_k);
  own_ids[0] = 65536 + static_cast<std::int32_t>(transport->rank());
  own_ids[1] = 3;
  own_ids[2] = (1 << 20) - 1;
  const metro::Mirror<float> own_weights("own weights", top_k);
  const metro::Buffer<float> row("row", hidden);
  std::vector<std::int32_t> all(static_cast<std::size_t>(transport->size() * top_k));

  exchange.gather(batch, {row.data(), top_k, &own_ids, &own_weights}, all);

  for (std::int64_t rank = 0; rank < transport->size(); ++rank) {
    const auto first = all.begin() + rank * top_k;
    CHECK(std::vector<std::int32_t>(first, first + top_k) ==
          std::vector<std::int32_t>{65536 + static_cast<std::int32_t>(rank), 3, (1 << 20) - 1});
  }
}

TEST_CASE("rows of a rank that routed differently are refused with the layer and the ranks") {
  const auto transport = metro::make_mpi_transport(60.0);
  const auto device_exchange = metro::make_device_exchange(*transport);
  metro::PhaseClock clock;
  metro::RowExchange rows(small_spec(), *device_exchange, max_rows, max_rows, clock);
  const bool odd_one = transport->rank() == transport->size() - 1 && transport->size() > 1;
  rows.group({});
  rows.begin_round();
  for (std::int64_t rank = 0; rank < transport->size(); ++rank) {
    rows.expect(0);
  }

  const auto exchange = [&] { rows.exchange(5, nullptr, 0, 1, odd_one ? 8 : 7); };

  if (transport->size() == 1) {
    CHECK_NOTHROW(exchange());
  } else {
    metro::test::expect_error(metro::ExitCode::internal, {"disagree", "MoE layer 5", "0 and 0 rows"}, exchange);
  }
}
