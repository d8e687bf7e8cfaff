// Loading on several threads gives what packing whole tensors gives, and the error of a single thread.
#include "checkpoint/layout.hpp"
#include "decoder/dense_weights.hpp"
#include "decoder/expert_store.hpp"
#include "kernels/cpu_settings.hpp"
#include "support/expect_error.hpp"
#include "support/kernel_memory.hpp"
#include "support/model_fixture.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>

using metro::CheckpointReader;
using metro::ExitCode;
using metro::PackedMatrix;
using metro::StoredType;
using metro::TensorInfo;
using metro::test::expect_error;
using metro::test::ScratchCheckpoint;

namespace {

// Threads of loading for as long as it lives.
class Threads {
 public:
  explicit Threads(std::int64_t num_threads) { metro::set_num_kernel_threads(num_threads); }
  ~Threads() { metro::set_num_kernel_threads(1); }
};

void flip_bit(const std::string& path, std::int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1));
  REQUIRE(file.good());
}

std::vector<std::byte> read_all(const CheckpointReader& reader, const std::string& dataset) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(reader.info(dataset).num_bytes()));
  reader.read_tensor(dataset, bytes);
  return bytes;
}

// Rows first_row and on of a matrix of `dataset`, read in one go and packed by the portable order of packed_matrix.hpp.
bool is_packed_from(const PackedMatrix& matrix, const CheckpointReader& reader, const std::string& dataset,
                    std::int64_t first_row) {
  const std::vector<std::byte> stored = read_all(reader, dataset);
  const std::int64_t element_bytes = metro::bytes_of(matrix.type);
  const std::vector<std::byte> packed =
      metro::test::host_copy(static_cast<const std::byte*>(matrix.data), metro::packed_bytes(matrix));
  for (std::int64_t n = 0; n < matrix.out; ++n) {
    for (std::int64_t k = 0; k < matrix.in; ++k) {
      const std::byte* element = packed.data() + (((n / 32) * matrix.in + k) * 32 + n % 32) * element_bytes;
      const std::byte* source = stored.data() + ((first_row + n) * matrix.in + k) * element_bytes;
      if (std::memcmp(element, source, static_cast<std::size_t>(element_bytes)) != 0) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

TEST_CASE("every weight is where the kernels look for it, whatever the number of threads") {
  const std::string name = GENERATE("qwen3_moe", "qwen3_moe_mixed", "qwen3_moe_sharded_bf16", "qwen2_moe");
  const std::int64_t num_threads = GENERATE(1, 2, 5);
  CAPTURE(name, num_threads);
  const ScratchCheckpoint file(metro::test::family_folder(name));
  const CheckpointReader reader(file.path());
  const metro::ModelSpec& spec = reader.spec();
  const auto self = metro::make_self_transport();
  const Threads threads(num_threads);

  const metro::DenseWeights dense(reader, metro::Sharing::per_rank, *self);
  metro::ResidentExpertStore experts(
      reader, metro::place_trivial(spec.num_moe_layers(), spec.moe.num_experts, 1, spec.moe.num_experts), 0, false);

  CHECK(dense.num_bytes() == metro::DenseWeights::planned_bytes(reader));
  CHECK(is_packed_from(dense.embed(), reader, "/embed", 0));
  CHECK(is_packed_from(dense.lm_head(), reader, spec.tied_embeddings ? "/embed" : "/lm_head", 0));
  for (std::int64_t i = 0, moe_layer = 0; i < spec.num_layers; ++i) {
    const metro::DenseLayer& layer = dense.layer(i);
    const auto in_layer = [i](const char* tensor) { return metro::layout::in_layer(i, tensor); };
    CHECK(is_packed_from(layer.o, reader, in_layer("attention/o"), 0));
    if (spec.layers[static_cast<std::size_t>(i)] == metro::LayerKind::dense) {
      CHECK(is_packed_from(layer.mlp.gate, reader, in_layer("dense/gate_up"), 0));
      CHECK(is_packed_from(layer.mlp.up, reader, in_layer("dense/gate_up"), layer.mlp.gate.out));
      CHECK(is_packed_from(layer.mlp.down, reader, in_layer("dense/down"), 0));
      continue;
    }
    CHECK(is_packed_from(layer.router.weights, reader, in_layer("gate"), 0));
    if (spec.moe.shared_width > 0) {
      CHECK(is_packed_from(layer.shared.gate, reader, in_layer("shared/gate_up"), 0));
      CHECK(is_packed_from(layer.shared.up, reader, in_layer("shared/gate_up"), layer.shared.gate.out));
      CHECK(is_packed_from(layer.shared.down, reader, in_layer("shared/down"), 0));
      CHECK(is_packed_from(layer.shared_gate, reader, in_layer("shared/gate"), 0));
    }
    for (std::int64_t expert = 0; expert < spec.moe.num_experts; ++expert) {
      const metro::ExpertWeights weights = experts.acquire(moe_layer, expert);
      CHECK(is_packed_from(weights.gate, reader, in_layer("experts/gate_up"), expert * 2 * weights.gate.out));
      CHECK(is_packed_from(weights.up, reader, in_layer("experts/gate_up"), (2 * expert + 1) * weights.gate.out));
      CHECK(is_packed_from(weights.down, reader, in_layer("experts/down"), expert * weights.down.out));
    }
    ++moe_layer;
  }
}

TEST_CASE("a vector becomes floats, whatever it is stored as") {
  const std::string name = GENERATE("qwen3_moe", "qwen3_moe_sharded_bf16");
  const ScratchCheckpoint file(metro::test::family_folder(name));
  const CheckpointReader reader(file.path());
  const auto self = metro::make_self_transport();

  const metro::DenseWeights dense(reader, metro::Sharing::per_rank, *self);

  const std::vector<std::byte> stored = read_all(reader, "/norm");
  const TensorInfo& info = reader.info("/norm");
  const std::vector<float> norm = metro::test::host_copy(dense.norm().weight, info.num_elements());
  for (std::int64_t i = 0; i < info.num_elements(); ++i) {
    float expected = 0.0F;
    if (info.type == StoredType::f32) {
      std::memcpy(&expected, stored.data() + 4 * i, 4);
    } else {
      std::uint16_t word = 0;
      std::memcpy(&word, stored.data() + 2 * i, 2);
      expected = metro::widen_bf16(word);
    }
    CHECK(norm[static_cast<std::size_t>(i)] == expected);
  }
}

TEST_CASE("of several damaged tensors the first of the file is named, whatever the number of threads") {
  const std::int64_t num_threads = GENERATE(1, 2, 5);
  CAPTURE(num_threads);
  const ScratchCheckpoint file(metro::test::family_folder("qwen3_moe"));
  const CheckpointReader reader(file.path());
  const metro::ModelSpec& spec = reader.spec();
  const auto self = metro::make_self_transport();
  const Threads threads(num_threads);
  const TensorInfo& down = reader.info("/layers/001/experts/down");
  for (const std::int64_t expert : {5, 6, 9}) {
    flip_bit(file.path(), down.file_offset + expert * down.unit_bytes());
  }
  const TensorInfo& key = reader.info("/layers/000/attention/k");
  const TensorInfo& router = reader.info("/layers/001/gate");
  REQUIRE(key.file_offset < router.file_offset);
  flip_bit(file.path(), router.file_offset);
  flip_bit(file.path(), key.file_offset + key.num_bytes() - 1);

  expect_error(ExitCode::checkpoint, {file.path().c_str(), "tensor /layers/001/experts/down, expert 5,", "damaged"},
               [&] {
                 metro::ResidentExpertStore(
                     reader, metro::place_trivial(spec.num_moe_layers(), spec.moe.num_experts, 1, spec.moe.num_experts),
                     0, false);
               });
  expect_error(ExitCode::checkpoint, {"tensor /layers/000/attention/k", "damaged"},
               [&] { metro::DenseWeights(reader, metro::Sharing::per_rank, *self); });
  CHECK_THROWS_AS(metro::DenseWeights(reader, metro::Sharing::per_rank, *self), metro::AgreedError);
}
