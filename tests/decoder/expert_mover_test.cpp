// After experts have moved, a rank holds the same bytes as if it had been started with the new placement. Run at
// several rank counts.
#include "decoder/expert_mover.hpp"
#include "support/expect_error.hpp"
#include "support/kernel_memory.hpp"
#include "support/model_fixture.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <random>
#include <set>
#include <utility>

using metro::CheckpointReader;
using metro::ConvertedWeights;
using metro::ExpertMover;
using metro::Placement;
using metro::ResidentExpertStore;
using metro::Transport;
using metro::WeightSource;
using metro::test::ScratchCheckpoint;

namespace {

// Every rank gets the slots of the rank before it: rank A's experts to B, B's to C, C's to A, all at once.
Placement rotated(Placement placement) {
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    const auto begin = placement.slot_to_expert.begin() + layer * placement.num_slots();
    const auto end = begin + placement.num_slots();
    std::rotate(begin, end - placement.slots_per_rank, end);
  }
  return placement;
}

// Any placement with replicas, several of them on one rank, and empty slots; the same on all ranks.
Placement made_up(std::int64_t num_layers, std::int64_t num_experts, std::int64_t num_ranks,
                  std::int64_t slots_per_rank, std::mt19937& random) {
  Placement placement = metro::place_trivial(num_layers, num_experts, num_ranks, slots_per_rank);
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    const auto begin = placement.slot_to_expert.begin() + layer * placement.num_slots();
    for (std::int64_t slot = num_experts; slot < placement.num_slots(); ++slot) {
      begin[slot] = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(num_experts + 1)) - 1;
    }
    std::shuffle(begin, begin + placement.num_slots(), random);
  }
  return placement;
}

void check_as_if_loaded(CheckpointReader& checkpoint, const Placement& placement, std::int64_t rank,
                        ResidentExpertStore& moved) {
  ResidentExpertStore fresh(checkpoint, placement, rank, true);
  CHECK(moved.num_bytes() == fresh.num_bytes());
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    const auto hosted = metro::hosted_experts(placement, layer, rank);
    for (std::int32_t expert = 0; expert < placement.num_experts; ++expert) {
      CAPTURE(layer, expert);
      if (!std::binary_search(hosted.begin(), hosted.end(), expert)) {
        CHECK_THROWS_AS(moved.acquire(layer, expert), metro::Bug);
        continue;
      }
      const auto bytes = moved.packed(layer, expert);
      const auto expected = fresh.packed(layer, expert);
      REQUIRE(bytes.size() == expected.size());
      CHECK(metro::test::host_copy(bytes.data(), std::ssize(bytes)) ==
            metro::test::host_copy(expected.data(), std::ssize(expected)));
      const metro::ExpertWeights weights = moved.acquire(layer, expert);
      const metro::ExpertWeights loaded = fresh.acquire(layer, expert);
      CHECK(weights.gate.data == bytes.data());
      CHECK(static_cast<const std::byte*>(weights.up.data) - bytes.data() ==
            static_cast<const std::byte*>(loaded.up.data) - expected.data());
      CHECK(static_cast<const std::byte*>(weights.down.data) - bytes.data() ==
            static_cast<const std::byte*>(loaded.down.data) - expected.data());
      CHECK(weights.down.type == loaded.down.type);
    }
  }
}

}  // namespace

TEST_CASE("after a cycle and after any other change the weights are those of a fresh start") {
  using Model = std::pair<std::string, ConvertedWeights>;
  const auto [name, weights] =
      GENERATE(Model("qwen3_moe", ConvertedWeights::stored), Model("qwen3_moe_mixed", ConvertedWeights::stored),
               Model("qwen3_moe_mixed", ConvertedWeights::int8));
  const bool is_int8 = weights == ConvertedWeights::int8;
  const WeightSource source = GENERATE(WeightSource::peers, WeightSource::checkpoint);
  const std::int64_t exchange_bytes = GENERATE(1, 5000, 1 << 24);  // many rounds, some, one
  CAPTURE(name, is_int8, source == WeightSource::peers, exchange_bytes);
  const ScratchCheckpoint file(metro::test::family_folder(name), weights);
  CheckpointReader checkpoint(file.path());
  const auto transport = metro::make_mpi_transport(60.0);
  const auto exchange = metro::make_device_exchange(*transport);
  const std::int64_t num_experts = checkpoint.spec().moe.num_experts;
  const std::int64_t num_layers = checkpoint.spec().num_moe_layers();
  const std::int64_t slots = (num_experts + transport->size() - 1) / transport->size() + 2;
  std::mt19937 random(5);
  Placement now = made_up(num_layers, num_experts, transport->size(), slots, random);
  ResidentExpertStore store(checkpoint, now, transport->rank(), true);
  ExpertMover mover(checkpoint, store, *exchange, now, exchange_bytes);
  CHECK(mover.num_bytes() == ExpertMover::planned_bytes(checkpoint, now, exchange_bytes));

  for (int change = 0; change < 6; ++change) {
    const Placement next =
        change % 2 == 0 ? rotated(now) : made_up(num_layers, num_experts, transport->size(), slots, random);
    const std::int64_t num_bytes_read = checkpoint.bytes_read();
    std::int64_t num_lacking = 0;
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      const auto before = metro::hosted_experts(now, layer, transport->rank());
      const std::set<std::int32_t> held(before.begin(), before.end());
      for (const std::int32_t expert : metro::hosted_experts(next, layer, transport->rank())) {
        num_lacking += held.count(expert) == 0 ? 1 : 0;
      }
    }

    const std::int64_t num_fetched = mover.move(now, next, source);

    CAPTURE(change);
    CHECK(num_fetched == num_lacking);
    CHECK((checkpoint.bytes_read() > num_bytes_read) == (source == WeightSource::checkpoint && num_fetched > 0));
    check_as_if_loaded(checkpoint, next, transport->rank(), store);
    now = next;
  }
}

TEST_CASE("a placement that changes nothing on a rank fetches nothing and sends nothing") {
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  CheckpointReader checkpoint(file.path());
  const auto transport = metro::make_mpi_transport(60.0);
  const auto exchange = metro::make_device_exchange(*transport);
  const Placement placement = metro::place_trivial(2, 10, transport->size(), 10);
  ResidentExpertStore store(checkpoint, placement, transport->rank(), true);
  ExpertMover mover(checkpoint, store, *exchange, placement, 1 << 20);
  const std::int64_t bytes_sent = transport->bytes_sent();

  const std::int64_t num_fetched = mover.move(placement, placement, WeightSource::peers);

  CHECK(num_fetched == 0);
  CHECK(transport->bytes_sent() == bytes_sent);
}

TEST_CASE("a checkpoint that is damaged while the job runs is reported by all ranks alike") {
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  CheckpointReader checkpoint(file.path());
  const auto transport = metro::make_mpi_transport(60.0);
  const auto exchange = metro::make_device_exchange(*transport);
  const std::int64_t last_rank = transport->size() - 1;
  const Placement now = metro::place_trivial(2, 10, transport->size(), 10 / transport->size() + 1);
  ResidentExpertStore store(checkpoint, now, transport->rank(), true);
  ExpertMover mover(checkpoint, store, *exchange, now, 1 << 20);
  if (transport->rank() == last_rank) {
    const metro::TensorInfo& tensor = checkpoint.info("/layers/001/experts/down");
    std::fstream damage(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    damage.seekp(tensor.file_offset);
    damage << std::string(static_cast<std::size_t>(tensor.num_bytes()), 'x');
    REQUIRE(damage.flush().good());
  }

  const auto move = [&] { mover.move(now, rotated(now), WeightSource::checkpoint); };

  if (transport->size() == 1) {
    CHECK_NOTHROW(move());  // nothing to fetch
  } else {
    const std::string rank = "rank " + std::to_string(last_rank);
    metro::test::expect_error(metro::ExitCode::checkpoint, {rank.c_str(), "/layers/001/experts/down", "digest"}, [&] {
      try {
        move();
      } catch (const metro::AgreedError&) {
        throw;  // the only kind that is printed once
      } catch (const metro::Error& error) {
        FAIL("not agreed: " << error.what());
      }
    });
  }
}

TEST_CASE("all ranks measure the same times, whatever the size of their messages") {
  const std::int64_t exchange_bytes = GENERATE(1, 1 << 20);
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  CheckpointReader checkpoint(file.path());
  const auto transport = metro::make_mpi_transport(60.0);
  const auto exchange = metro::make_device_exchange(*transport);
  const Placement placement = metro::place_trivial(2, 10, transport->size(), 10);
  ResidentExpertStore store(checkpoint, placement, transport->rank(), true);
  ExpertMover mover(checkpoint, store, *exchange, placement, exchange_bytes);

  const metro::SourceTimes times = mover.measure();

  const auto peers = metro::gather_integers(*transport, times.peers_ns);
  const auto from_file = metro::gather_integers(*transport, times.checkpoint_ns);
  CHECK(std::count(peers.begin(), peers.end(), peers[0]) == transport->size());
  CHECK(std::count(from_file.begin(), from_file.end(), from_file[0]) == transport->size());
  CHECK((times.peers_ns > 0) == (transport->size() > 1));
  CHECK((times.checkpoint_ns > 0) == (transport->size() > 1));
}

TEST_CASE("the faster source is taken, and other ranks when both are as fast") {
  CHECK(metro::SourceTimes{5, 4}.faster() == WeightSource::checkpoint);
  CHECK(metro::SourceTimes{4, 5}.faster() == WeightSource::peers);
  CHECK(metro::SourceTimes{4, 4}.faster() == WeightSource::peers);
}
