// Prefill whose experts are computed by the vendor's grouped product: close to the reproducible one, and of no effect
// on the arithmetic of decode. On the emulated device, at several rank counts.
#include "decoder/decoder.hpp"
#include "device_double/device_double.hpp"
#include "kernels/buffer.hpp"
#include "support/expect_error.hpp"
#include "support/model_fixture.hpp"
#include "transport/device_exchange.hpp"
#include "transport/nccl_exchange.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

using metro::test::ScratchCheckpoint;
using metro::test::SequenceBatch;
namespace cuda_double = metro::device_double;

namespace {

constexpr std::int64_t num_sequences = 2;
constexpr std::int64_t prompt_length = 12;

struct Job {
  std::unique_ptr<metro::Transport> transport = metro::make_mpi_transport(60.0);
  std::unique_ptr<metro::DeviceExchange> exchange = metro::make_nccl_exchange(*transport, 60.0);
};

metro::DecoderLimits limits_of(bool grouped_experts, std::int64_t exchange_bytes) {
  return {.max_rows = 32,
          .max_decode_rows = num_sequences,
          .max_sampled_rows = num_sequences,
          .max_context = 24,
          .kv_blocks = num_sequences * 6,
          .block_tokens = 4,
          .exchange_bytes = exchange_bytes,
          .grouped_experts = grouped_experts};
}

// A decoder of the job with its sequences.
class Run {
 public:
  Run(metro::CheckpointReader& checkpoint, Job& job, bool grouped_experts, std::int64_t exchange_bytes = 1 << 20)
      : vocab_(checkpoint.spec().vocab_size),
        limits_(limits_of(grouped_experts, exchange_bytes)),
        placement_(placement_of(checkpoint.spec(), job.exchange->size())),
        decoder_(checkpoint, {checkpoint, limits_.max_context, metro::Sharing::per_rank, *job.transport}, placement_,
                 {}, *job.exchange, limits_),
        batch_(limits_, *job.transport) {
    for (std::int64_t sequence = 0; sequence < num_sequences; ++sequence) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(limits_.max_context));
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto place = static_cast<std::int64_t>(i);
        tokens[i] = static_cast<std::int32_t>(
            ((job.exchange->rank() + 1) * 131 + sequence * 37 + place * place * 17 + place * 7) % vocab_);
      }
      batch_.add(tokens);
    }
  }

  // Logits of the last of `num_tokens` more tokens of each sequence.
  std::vector<float> forward(bool decode, std::int64_t num_tokens) {
    const std::vector<std::int64_t> first(num_sequences, num_done_);
    const std::vector<std::int64_t> end(num_sequences, num_done_ + num_tokens);
    num_done_ += num_tokens;
    const metro::RowBatch rows = batch_.rows(decode, first, end);
    const float* const logits = decoder_.forward(rows, nullptr);
    std::vector<float> own(rows.sampled_rows.size() * static_cast<std::size_t>(vocab_));
    metro::copy_to_host(std::span<float>(own), logits);
    return own;
  }

  metro::MemoryPlan memory() const { return decoder_.memory(); }
  metro::MemoryPlan planned(metro::CheckpointReader& checkpoint, std::int64_t rank) const {
    const std::vector<std::int64_t> alone(static_cast<std::size_t>(placement_.num_ranks), 1);
    return metro::plan_memory_of_ranks(checkpoint, placement_, limits_, alone)[static_cast<std::size_t>(rank)];
  }

 private:
  static metro::Placement placement_of(const metro::ModelSpec& spec, std::int64_t num_ranks) {
    return metro::place_eplb({}, spec.num_moe_layers(), spec.moe.num_experts, 1, 1, num_ranks,
                             (spec.moe.num_experts + num_ranks - 1) / num_ranks);
  }

  std::int64_t vocab_;
  metro::DecoderLimits limits_;
  metro::Placement placement_;
  metro::Decoder decoder_;
  SequenceBatch batch_;
  std::int64_t num_done_ = 0;
};

double root_mean_square(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

std::vector<float> difference(std::vector<float> a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::minus<>());
  return a;
}

}  // namespace

TEST_CASE("logits of a prefill by grouped experts are near the reproducible ones") {
  Job job;
  const ScratchCheckpoint file(metro::test::tiny_folder());
  metro::CheckpointReader checkpoint(file.path());
  const std::int64_t exchange_bytes = GENERATE(1 << 20, 1 << 15);  // one round, and several

  const std::vector<float> reproducible = Run(checkpoint, job, false, exchange_bytes).forward(false, prompt_length);
  const std::vector<float> grouped = Run(checkpoint, job, true, exchange_bytes).forward(false, prompt_length);

  // What a layer adds is off by some 2^-8, more where that tips the choice of an expert.
  const double distance = root_mean_square(difference(grouped, reproducible)) / root_mean_square(reproducible);
  CAPTURE(distance);
  CHECK(distance <= 0x1p-6);
  CHECK(distance > 0.0);
}

TEST_CASE("decode steps of a decoder with grouped experts give the bits of one without") {
  Job job;
  const ScratchCheckpoint file(metro::test::tiny_folder());
  metro::CheckpointReader checkpoint(file.path());
  Run without(checkpoint, job, false);
  Run with(checkpoint, job, true);

  for (std::int64_t step = 0; step < 3; ++step) {
    CHECK(with.forward(true, 1) == without.forward(true, 1));
  }
}

TEST_CASE("a decoder with grouped experts holds the memory that was planned for it") {
  Job job;
  const ScratchCheckpoint file(metro::test::tiny_folder());
  metro::CheckpointReader checkpoint(file.path());
  const Run with(checkpoint, job, true);
  const Run without(checkpoint, job, false);

  CHECK(with.memory().buffers == with.planned(checkpoint, job.exchange->rank()).buffers);
  CHECK(with.memory().buffers - without.memory().buffers >= 32 << 20);  // the workspace of cuBLAS
}

TEST_CASE("a grouped product that cuBLAS refuses ends the step with what cuBLAS says and the remedy") {
  Job job;
  const ScratchCheckpoint file(metro::test::tiny_folder());
  metro::CheckpointReader checkpoint(file.path());
  Run run(checkpoint, job, true);
  cuda_double::reset();
  cuda_double::fail_call("cublasGemmGroupedBatchedEx", cudaErrorNotSupported);

  metro::test::expect_error(
      metro::ExitCode::machine,
      {"cublasGemmGroupedBatchedEx failed: the functionality requested is not supported (CUBLAS_STATUS_NOT_SUPPORTED, "
       "15); kernels.reproducible = \"on\" does without cuBLAS"},
      [&] { run.forward(false, prompt_length); });
  cuda_double::reset();
}
