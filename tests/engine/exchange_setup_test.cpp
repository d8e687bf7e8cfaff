// How a job comes to the way in which its decode rows travel. Run at several rank counts.
#include "engine/exchange_setup.hpp"
#include "deck/deck.hpp"
#include "engine/run_on_tiny.hpp"
#include "report/metrics_reader.hpp"
#include "transport/agree.hpp"
#include "transport/mpi_transport.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

using Catch::Matchers::StartsWith;
using metro::ExchangeMode;
using metro::test::RunOnTinyModel;

namespace {

metro::ModelSpec spec_of(std::int64_t num_moe_layers) {
  metro::ModelSpec spec;
  spec.hidden_size = 32;
  spec.moe = {.num_experts = 8, .top_k = 2, .intermediate_size = 4};
  spec.layers.assign(static_cast<std::size_t>(num_moe_layers), metro::LayerKind::moe);
  return spec;
}

metro::Deck deck_with(const std::string& exchange, const std::string& gate) {
  metro::Deck deck;
  deck.decode = {exchange, gate};
  deck.exchange.levels = "one";
  return deck;
}

}  // namespace

TEST_CASE("auto is allgather where there is nothing to choose") {
  const metro::ModelSpec spec = spec_of(2);

  CHECK(metro::exchange_settings(deck_with("auto", "local"), spec, 2).mode == ExchangeMode::automatic);
  CHECK(metro::exchange_settings(deck_with("auto", "local"), spec, 1).mode == ExchangeMode::allgather);
  CHECK(metro::exchange_settings(deck_with("auto", "gathered"), spec, 2).mode == ExchangeMode::allgather);
  CHECK(metro::exchange_settings(deck_with("auto", "gathered"), spec, 2).gathered_gate);
  CHECK(metro::exchange_settings(deck_with("auto", "local"), spec_of(0), 2).mode == ExchangeMode::allgather);
  CHECK(metro::exchange_settings(deck_with("allgather", "local"), spec, 2).mode == ExchangeMode::allgather);
  CHECK(metro::exchange_settings(deck_with("ids_then_alltoall", "local"), spec, 1).mode ==
        ExchangeMode::ids_then_alltoall);
}

TEST_CASE("auto has no room for more gathered rows than are measured where ranks are more than the experts of a row") {
  metro::ModelSpec spec = spec_of(1);
  spec.hidden_size = 7168;
  metro::Deck deck = deck_with("auto", "local");
  deck.batch.max_sequences_per_rank = 32;
  const std::int64_t row_bytes = 7168 * 4;

  const metro::ExchangeSettings of_1024 = metro::exchange_settings(deck, spec, 1024);
  const metro::ExchangeSettings of_16 = metro::exchange_settings(deck, spec, 16);
  const metro::ExchangeSettings of_2 = metro::exchange_settings(deck, spec, 2);
  const metro::ExchangeSettings set = metro::exchange_settings(deck_with("allgather", "local"), spec, 1024);

  CHECK(of_1024.most_gathered_rows == 1024);
  CHECK(of_16.most_gathered_rows == 16 * 32);
  CHECK(16 * 32 * row_bytes < (32 << 20));
  CHECK(of_2.most_gathered_rows > std::int64_t{1} << 60);
  CHECK(set.most_gathered_rows > std::int64_t{1} << 60);
}

TEST_CASE("what is set is not measured") {
  const auto transport = metro::make_mpi_transport(60.0);
  const auto exchange = metro::make_device_exchange(*transport);
  metro::DecoderLimits limits;
  const std::int64_t sent_before = transport->bytes_sent();

  limits.exchange = {ExchangeMode::ids_then_alltoall};
  CHECK(metro::agree_on_exchange(spec_of(1), {}, {}, *exchange, limits) == "ids_then_alltoall");
  limits.exchange = {ExchangeMode::allgather, 0, true};
  CHECK(metro::agree_on_exchange(spec_of(1), {}, {}, *exchange, limits) == "allgather; gate on the rows of all ranks");

  CHECK(transport->bytes_sent() == sent_before);
}

TEST_CASE("all ranks come to the same border and say the same") {
  const auto transport = metro::make_mpi_transport(60.0);
  const auto exchange = metro::make_device_exchange(*transport);
  const metro::ModelSpec spec = spec_of(1);
  const metro::Placement placement =
      metro::place_trivial(1, 8, transport->size(), metro::slots_for_replication(8, transport->size(), 1.5));
  metro::DecoderLimits limits{.max_decode_rows = 5};
  limits.exchange.mode = ExchangeMode::automatic;

  const std::string said = metro::agree_on_exchange(spec, placement, {}, *exchange, limits);

  CHECK_NOTHROW(metro::require_same(*transport, "exchange", said));
  for (const std::int64_t border : metro::gather_integers(*transport, limits.exchange.most_allgather_rows)) {
    CHECK(border == limits.exchange.most_allgather_rows);
  }
  CHECK_THAT(said, StartsWith("auto: "));
}

TEST_CASE("two levels are chosen or measured only where ranks share some of several nodes") {
  const std::int64_t ranks_per_node = GENERATE(as<std::int64_t>{}, 0, 2);
  metro::MpiTransport transport(60.0, metro::MpiTransport::default_piece_bytes, ranks_per_node);
  const auto exchange = metro::make_device_exchange(transport);
  const bool is_possible = ranks_per_node > 0 && transport.size() > ranks_per_node;
  const metro::ModelSpec spec = spec_of(1);
  const metro::Placement placement =
      metro::place_trivial(1, 8, transport.size(), metro::slots_for_replication(8, transport.size(), 1.5));
  metro::DecoderLimits limits{.max_decode_rows = 5};

  limits.exchange.levels = metro::LevelsWish::two;
  CHECK(metro::agree_on_exchange(spec, placement, {}, *exchange, limits) ==
        (is_possible ? "allgather; two levels" : "allgather"));

  limits.exchange.levels = metro::LevelsWish::automatic;
  const std::string said = metro::agree_on_exchange(spec, placement, {}, *exchange, limits);
  CHECK_NOTHROW(metro::require_same(transport, "exchange", said));
  if (is_possible) {
    CHECK_THAT(said, Catch::Matchers::Matches("allgather; (two levels|one level) \\(two take [0-9.]+ of the time of "
                                              "one, with [0-9]+ rows of all ranks\\)"));
  } else {
    CHECK(said == "allgather");
  }
}

TEST_CASE("the metrics of a run say how its decode rows travelled") {
  const auto transport = metro::make_mpi_transport(60.0);
  const bool by_ids = GENERATE(false, true);
  const RunOnTinyModel run(*transport, "exact", by_ids ? "decode.exchange = \"ids_then_alltoall\"\n" : "");

  if (transport->rank() != 0) {
    return;
  }
  const metro::MetricsReader reader(run.output("metrics.h5"));
  if (by_ids) {
    CHECK(reader.identity().decode_exchange == "ids_then_alltoall");
  } else {
    CHECK_THAT(reader.identity().decode_exchange, StartsWith(transport->size() == 1 ? "allgather" : "auto: "));
  }
}
