// What ranks of a node share is what each of them would have loaded for itself. Run at several rank counts, on one node
// and on nodes of two ranks.
#include "decoder/decoder.hpp"
#include "support/expect_error.hpp"
#include "support/model_fixture.hpp"
#include "transport/mpi_transport.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>
#include <optional>

using metro::CheckpointReader;
using metro::DenseWeights;
using metro::ExitCode;
using metro::MpiTransport;
using metro::PackedMatrix;
using metro::ReplicatedTensors;
using metro::Sharing;
using metro::test::expect_error;
using metro::test::ScratchCheckpoint;

namespace {

constexpr double timeout_s = 60.0;
constexpr std::int64_t max_context = 5000;

std::int64_t ranks_per_node() {
  return GENERATE(as<std::int64_t>{}, 0, 2);
}

bool same(const PackedMatrix& a, const PackedMatrix& b) {
  return a.out == b.out && a.in == b.in && a.type == b.type &&
         std::memcmp(a.data, b.data, static_cast<std::size_t>(metro::packed_bytes(a))) == 0;
}

bool same(const float* a, const float* b, std::int64_t num) {
  return std::memcmp(a, b, static_cast<std::size_t>(num) * sizeof(float)) == 0;
}

std::int64_t ranks_on_node_of(std::int64_t rank, std::int64_t size, std::int64_t per_node) {
  return per_node == 0 ? size : std::min(per_node, size - rank / per_node * per_node);
}

}  // namespace

TEST_CASE("shared tensors are equal to own ones by every bit, and each is read once per node") {
  const std::int64_t per_node = ranks_per_node();
  MpiTransport transport(timeout_s, MpiTransport::default_piece_bytes, per_node);
  const auto weights = GENERATE(metro::ConvertedWeights::stored, metro::ConvertedWeights::int8);
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe_mixed"), weights);
  const CheckpointReader reader(file.path());
  const metro::ModelSpec& spec = reader.spec();

  const ReplicatedTensors own(reader, max_context, Sharing::per_rank, transport);
  const std::int64_t own_bytes = reader.bytes_read();
  const ReplicatedTensors shared(reader, max_context, Sharing::per_node, transport);
  std::int64_t shared_bytes = reader.bytes_read() - own_bytes;
  transport.all_reduce_sum({&shared_bytes, 1});

  const std::int64_t size = transport.size();
  const std::int64_t num_nodes = per_node == 0 ? 1 : (size + per_node - 1) / per_node;
  CHECK(shared_bytes == num_nodes * own_bytes);
  CHECK(same(shared.rope.cos(), own.rope.cos(), max_context * spec.attention.head_dim / 2));
  CHECK(same(shared.rope.sin(), own.rope.sin(), max_context * spec.attention.head_dim / 2));
  CHECK(same(shared.dense.embed(), own.dense.embed()));
  CHECK(same(shared.dense.lm_head(), own.dense.lm_head()));
  CHECK(same(shared.dense.norm(), own.dense.norm(), spec.hidden_size));
  for (std::int64_t i = 0; i < spec.num_layers; ++i) {
    const metro::DenseLayer& a = shared.dense.layer(i);
    const metro::DenseLayer& b = own.dense.layer(i);
    CHECK(same(a.attention_norm, b.attention_norm, spec.hidden_size));
    CHECK((same(a.q, b.q) && same(a.k, b.k) && same(a.v, b.v) && same(a.o, b.o)));
    CHECK((same(a.q_norm, b.q_norm, spec.attention.head_dim) && same(a.k_norm, b.k_norm, spec.attention.head_dim) &&
           same(a.mlp_norm, b.mlp_norm, spec.hidden_size)));
    if (spec.layers[static_cast<std::size_t>(i)] == metro::LayerKind::moe) {
      CHECK(same(a.router.weights, b.router.weights));
    } else {
      CHECK((same(a.mlp.gate, b.mlp.gate) && same(a.mlp.up, b.mlp.up) && same(a.mlp.down, b.mlp.down)));
    }
  }
}

TEST_CASE("the memory plan charges each rank its part of what its node shares, and that is what it holds") {
  const std::int64_t per_node = ranks_per_node();
  MpiTransport transport(timeout_s, MpiTransport::default_piece_bytes, per_node);
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  const CheckpointReader reader(file.path());
  const metro::DecoderLimits limits{.max_context = 100, .kv_blocks = 7, .exchange_bytes = 1 << 16};
  const metro::Placement placement = metro::place_trivial(2, 10, transport.size(), 10);
  const std::int64_t num_sharers = ranks_on_node_of(transport.rank(), transport.size(), per_node);

  const auto exchange = metro::make_device_exchange(transport);
  const metro::Decoder decoder(reader, {reader, 100, Sharing::per_node, transport}, placement, {}, *exchange, limits);

  const auto plan_of = [&](std::int64_t sharers) {
    const std::vector<std::int64_t> sharers_of_rank(static_cast<std::size_t>(transport.size()), sharers);
    return metro::plan_memory_of_ranks(reader, placement, limits,
                                       sharers_of_rank)[static_cast<std::size_t>(transport.rank())];
  };
  const metro::MemoryPlan planned = plan_of(num_sharers);
  const metro::MemoryPlan alone = plan_of(1);
  CHECK(decoder.memory().dense == planned.dense);
  CHECK(decoder.memory().total() == planned.total());
  CHECK(planned.dense >= alone.dense / num_sharers);
  CHECK(planned.dense <= alone.dense / num_sharers + 2);  // two pieces of memory, rounded up
}

TEST_CASE("a damaged tensor that one rank loads for its node is everybody's error") {
  MpiTransport transport(timeout_s);
  std::optional<ScratchCheckpoint> file;
  const std::string path = metro::from_rank_0(transport, [&] {
    file.emplace(metro::test::family_folder("qwen3_moe"));
    const CheckpointReader intact(file->path());
    std::fstream bytes(file->path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(intact.info("/lm_head").file_offset + 11);
    bytes.write("damage", 6);
    return file->path();
  });
  const CheckpointReader reader(path);

  expect_error(ExitCode::checkpoint, {"tensor /lm_head", "damaged"},
               [&] { DenseWeights(reader, Sharing::per_node, transport); });
  transport.barrier();  // or rank 0 would take the file away
}
