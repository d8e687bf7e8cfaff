// Loads are counted and summed over ranks, and what is made of them holds on all ranks. Run at several rank counts.
#include "engine/rebalancer.hpp"

#include "support/expect_error.hpp"
#include "support/model_fixture.hpp"
#include "transport/agree.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using metro::LoadCounter;
using metro::Placement;
using metro::RebalanceMetrics;
using metro::Rebalancer;
using metro::WeightSource;
using metro::test::ScratchCheckpoint;

namespace {

constexpr std::int64_t num_layers = 2, num_experts = 10;  // of the model in the fixture

// A decoder that can move its experts.
class Fixture {
 public:
  explicit Fixture(metro::Transport& transport)
      : file_(metro::test::family_folder("qwen3_moe")),
        checkpoint_(file_.path()),
        first_(metro::place_trivial(num_layers, num_experts, transport.size(), 10 / transport.size() + 1)),
        exchange_(metro::make_device_exchange(transport)),
        decoder_(checkpoint_, {checkpoint_, 4, metro::Sharing::per_rank, transport}, first_, metro::RoutingSettings{},
                 *exchange_, {.max_context = 4, .kv_blocks = 1, .exchange_bytes = 1 << 16, .movable_experts = true}) {}

  const Placement& first() const { return first_; }
  metro::Decoder& decoder() { return decoder_; }
  // Every rank's slots go to the next rank.
  Placement rotated() const {
    Placement placement = first_;
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      const auto begin = placement.slot_to_expert.begin() + layer * placement.num_slots();
      std::rotate(begin, begin + placement.num_slots() - placement.slots_per_rank, begin + placement.num_slots());
    }
    return placement;
  }

 private:
  ScratchCheckpoint file_;
  metro::CheckpointReader checkpoint_;
  Placement first_;
  std::unique_ptr<metro::DeviceExchange> exchange_;
  metro::Decoder decoder_;
};

struct Watcher : metro::StepObserver {
  std::int64_t num_choices = 0, num_routed = 0;
  void router_choices(std::int64_t, std::int64_t num_rows, std::span<const std::int32_t>,
                      std::span<const float>) override {
    num_choices += num_rows;
  }
  void routed(std::int64_t, std::span<const std::int32_t>, std::span<const std::int32_t>) override { ++num_routed; }
};

}  // namespace

TEST_CASE("rows are counted per layer and expert, padding is not, and counting starts anew") {
  LoadCounter counter(2, 3);
  Watcher watcher;
  counter.forward_to(&watcher);
  const std::vector<std::int32_t> ids{0, 2, 2, 0, -1, 3};
  const std::vector<float> weights(ids.size(), 0.5F);

  counter.router_choices(1, 3, ids, weights);
  counter.routed(1, ids, ids);
  const std::vector<std::int64_t> first = counter.take();
  const std::vector<std::int64_t> second = counter.take();

  CHECK(first == std::vector<std::int64_t>{0, 0, 0, 2, 0, 2});
  CHECK(second == std::vector<std::int64_t>(6, 0));
  CHECK(watcher.num_choices == 3);
  CHECK(watcher.num_routed == 1);
}

TEST_CASE("the new placement is made from the loads of all ranks together") {
  const auto transport = metro::make_mpi_transport(60.0);
  Fixture fixture(*transport);
  std::vector<std::int64_t> seen;
  Rebalancer rebalancer(
      5,
      [&](std::span<const std::int64_t> loads) {
        seen.assign(loads.begin(), loads.end());
        return fixture.rotated();
      },
      WeightSource::peers, fixture.decoder(), *transport);
  // Rank r sends r + 1 rows of layer 1 to expert r, and one to expert 9.
  const std::vector<std::int32_t> to_own(static_cast<std::size_t>(transport->rank() + 1),
                                         static_cast<std::int32_t>(transport->rank()));
  rebalancer.loads().router_choices(1, 1, to_own, {});
  rebalancer.loads().router_choices(1, 1, std::vector<std::int32_t>{9}, {});

  const RebalanceMetrics metrics = rebalancer.run(5);

  std::vector<std::int64_t> expected(num_layers * num_experts, 0);
  for (std::int64_t rank = 0; rank < transport->size(); ++rank) {
    expected[static_cast<std::size_t>(num_experts + rank)] = rank + 1;
  }
  expected[num_experts + 9] = transport->size();
  CHECK(seen == expected);
  CHECK(metrics.step == 5);
  CHECK(fixture.decoder().placement().slot_to_expert == metrics.slot_to_expert);
}

TEST_CASE("a change is reported alike by all ranks, with what it cost all of them") {
  const WeightSource source = GENERATE(WeightSource::peers, WeightSource::checkpoint);
  const auto transport = metro::make_mpi_transport(60.0);
  Fixture fixture(*transport);
  Rebalancer rebalancer(
      1, [&](auto) { return fixture.rotated(); }, source, fixture.decoder(), *transport);

  const RebalanceMetrics metrics = rebalancer.run(1);

  const bool alone = transport->size() == 1;
  const auto same = [&](std::int64_t value) {
    const auto values = metro::gather_integers(*transport, value);
    return std::count(values.begin(), values.end(), value) == transport->size();
  };
  CHECK(same(metrics.slots_moved));
  CHECK(same(metrics.experts_fetched));
  CHECK(same(metrics.bytes_sent));
  CHECK(same(metrics.bytes_read));
  CHECK((metrics.slots_moved > 0) == !alone);
  CHECK((metrics.experts_fetched > 0) == !alone);
  CHECK(metrics.slots_moved >= metrics.experts_fetched);
  CHECK((metrics.bytes_read > 0) == (!alone && source == WeightSource::checkpoint));
  CHECK((metrics.bytes_sent > 0) == !alone);  // the loads, at least
}

TEST_CASE("slots stay where they are when a placement only orders them in another way") {
  const auto transport = metro::make_mpi_transport(60.0);
  Fixture fixture(*transport);
  Placement reversed = fixture.first();
  for (std::size_t first = 0; first < reversed.slot_to_expert.size(); first += reversed.slots_per_rank) {
    std::reverse(reversed.slot_to_expert.begin() + static_cast<std::ptrdiff_t>(first),
                 reversed.slot_to_expert.begin() + static_cast<std::ptrdiff_t>(first) + reversed.slots_per_rank);
  }
  Rebalancer rebalancer(
      1, [&](auto) { return reversed; }, WeightSource::peers, fixture.decoder(), *transport);

  const RebalanceMetrics metrics = rebalancer.run(1);

  CHECK(metrics.slots_moved == 0);
  CHECK(metrics.experts_fetched == 0);
  CHECK(metrics.slot_to_expert == fixture.first().slot_to_expert);
}

TEST_CASE("ranks that make different placements stop before anything moves") {
  const auto transport = metro::make_mpi_transport(60.0);
  Fixture fixture(*transport);
  const std::int64_t last_rank = transport->size() - 1;
  Rebalancer rebalancer(
      1, [&](auto) { return transport->rank() == last_rank ? fixture.rotated() : fixture.first(); },
      WeightSource::peers, fixture.decoder(), *transport);

  if (transport->size() == 1) {
    CHECK_NOTHROW(rebalancer.run(1));
  } else {
    const std::string ranks = "ranks 0 and " + std::to_string(last_rank);
    metro::test::expect_error(metro::ExitCode::internal, {ranks.c_str(), "different placements"},
                              [&] { rebalancer.run(1); });
    CHECK(fixture.decoder().placement().slot_to_expert == fixture.first().slot_to_expert);
  }
}

TEST_CASE("rebalancing is due every so many steps, but not before the first") {
  const auto transport = metro::make_mpi_transport(60.0);
  Fixture fixture(*transport);
  const Rebalancer rebalancer(
      3, [&](auto) { return fixture.first(); }, WeightSource::peers, fixture.decoder(), *transport);

  std::vector<std::int64_t> due;
  for (std::int64_t step = 0; step < 10; ++step) {
    if (rebalancer.is_due(step)) {
      due.push_back(step);
    }
  }

  CHECK(due == std::vector<std::int64_t>{3, 6, 9});
}
