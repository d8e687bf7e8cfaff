// A decode step takes no memory once it has run at its size: every allocation of C++ is counted.
#include "decoder/decoder.hpp"
#include "support/model_fixture.hpp"
#include "transport/mpi_transport.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace {

std::atomic<std::int64_t> num_allocations = 0;

void* counted(std::size_t size) {
  ++num_allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

TEST_CASE("a decode step allocates nothing after the first of its size") {
  const metro::test::ScratchCheckpoint file(metro::test::tiny_folder());
  metro::CheckpointReader checkpoint(file.path());
  // As if on nodes of two ranks each: with more ranks in two levels.
  const auto transport = std::make_unique<metro::MpiTransport>(60.0, metro::MpiTransport::default_piece_bytes, 2);
  if (transport->prepare_two_levels(1 << 20)) {
    transport->set_levels(metro::Levels::two);
  }
  const metro::ModelSpec& spec = checkpoint.spec();
  const metro::DecoderLimits limits{.max_rows = 8,
                                    .max_decode_rows = 3,
                                    .max_sampled_rows = 3,
                                    .max_context = 32,
                                    .kv_blocks = 3 * 2,
                                    .block_tokens = 16,
                                    .exchange_bytes = 1 << 20};
  const std::int64_t slots = metro::slots_for_replication(spec.moe.num_experts, transport->size(), 1.5);
  const metro::Placement placement =
      metro::place_trivial(spec.num_moe_layers(), spec.moe.num_experts, transport->size(), slots);
  const auto mode = GENERATE(metro::ExchangeMode::allgather, metro::ExchangeMode::ids_then_alltoall);
  CAPTURE(mode);
  metro::DecoderLimits with_mode = limits;
  with_mode.exchange.mode = mode;
  const auto exchange = metro::make_device_exchange(*transport);
  metro::Decoder decoder(checkpoint, {checkpoint, limits.max_context, metro::Sharing::per_rank, *transport}, placement,
                         {}, *exchange, with_mode);
  metro::test::SequenceBatch sequences(limits, *transport);
  for (std::int32_t i = 0; i < 3; ++i) {
    sequences.add({5 + i, 9, 2 * i + 7});
  }
  const metro::RowBatch first = sequences.rows(true, {0, 0, 0}, {1, 1, 1});
  const metro::RowBatch second = sequences.rows(true, {1, 1, 1}, {2, 2, 2});
  decoder.forward(first, nullptr);
  if (transport->size() > 2) {
    decoder.forward(second, nullptr);  // a rank may serve more rows in it than ever before
  }

  const std::int64_t before = num_allocations;
  decoder.forward(second, nullptr);
  const std::int64_t allocations_of_step = num_allocations - before;

  CHECK(before > 0);  // they are counted
  CHECK(allocations_of_step == 0);
}
