// Times the kernels of one setting, each in turn with reading alone.
#include "base/integers.hpp"
#include "bench/kernel_bench.hpp"
#include "bench/read_speed.hpp"
#include "kernels/arithmetic_speed.hpp"
#include "kernels/buffer.hpp"
#include "kernels/cpu_settings.hpp"
#include "kernels/experts.hpp"
#include "kernels/linear.hpp"
#include "kernels/queue.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace metro {

namespace {

// Weights that stand for any: random sign and mantissa, size 2^-7 to 2^-6 as bf16 and as f32, so that results stay
// finite. As int8 any bytes are weights, and what is read as scales is f32; likewise fp8. Exponents of mxfp4
// are large: infinities, which take no longer.
void fill_weights(const Buffer<std::uint64_t>& weights) {
  constexpr std::int64_t piece_words = std::int64_t{1} << 17;
  constexpr std::uint64_t random_bits = 0x807f807f807f807fU;
  constexpr std::uint64_t exponents = 0x3c003c003c003c00U;
  std::uint64_t state = 1;
  std::vector<std::uint64_t> words;
  for (std::int64_t first = 0; first < weights.size(); first += piece_words) {
    words.resize(at(std::min(piece_words, weights.size() - first)));
    for (std::uint64_t& word : words) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      word = ((state ^ (state >> 32)) & random_bits) | exponents;
    }
    copy_from_host(weights.data() + first, std::span<const std::uint64_t>(words));
  }
}

// One thing to time: a call, on one after another of the chunks of the weights.
struct Contestant {
  KernelTiming timing;
  std::int64_t units_of_chunk = 0;  // experts or matrices of a call
  std::int64_t num_chunks = 0;
  std::function<void(std::int64_t chunk)> run;
  std::vector<double> seconds, limit_seconds;  // of every call
  std::vector<double> peaks;                   // GFLOP/s of arithmetic alone, beside every pass

  std::int64_t chunk_bytes() const { return static_cast<std::int64_t>(timing.bytes) * units_of_chunk; }
};

class Bench {
 public:
  Bench(const KernelBenchOptions& options, const KernelShapes& shapes)
      : options_(options), weights_("weights", (options.weight_mib << 20) / 8) {
    fill_weights(weights_);
    const std::int64_t rows = *std::max_element(options.rows.begin(), options.rows.end());
    std::int64_t widest = std::max(shapes.hidden, shapes.expert_width) * options.experts_per_call;
    for (const LinearShape& linear : shapes.linears) {
      widest = std::max({widest, linear.out, linear.in});
    }
    for (Buffer<float>* buffer : {&x_, &hidden_, &y_}) {
      *buffer = Buffer<float>("rows", widest * rows);
    }
    std::vector<float> x;
    for (std::int64_t i = 0; i < x_.size(); ++i) {
      x.push_back(static_cast<float>(i % 17 - 8) * 0.125F);
    }
    copy_from_host(x_.data(), std::span<const float>(x));
  }

  void add_experts(StoredType type, const KernelShapes& shapes, std::int64_t num_rows) {
    const std::int64_t matrix_bytes = packed_bytes(type, shapes.expert_width, shapes.hidden);
    const std::int64_t down_bytes = packed_bytes(type, shapes.hidden, shapes.expert_width);
    const std::int64_t expert_bytes = 2 * matrix_bytes + down_bytes;
    const std::int64_t num_experts = std::max<std::int64_t>(weights_.num_bytes() / expert_bytes, 1);
    const std::int64_t per_call = std::min(options_.experts_per_call, num_experts);
    std::vector<ExpertWork> work;
    for (std::int64_t expert = 0; expert < num_experts / per_call * per_call; ++expert) {
      const std::byte* data = bytes() + expert * expert_bytes;
      work.push_back({{{data, type, shapes.expert_width, shapes.hidden},
                       {data + matrix_bytes, type, shapes.expert_width, shapes.hidden},
                       {data + 2 * matrix_bytes, type, shapes.hidden, shapes.expert_width}},
                      expert % per_call * num_rows,
                      num_rows});
    }
    add({"experts", type, num_rows, 3 * shapes.expert_width * shapes.hidden}, expert_bytes, per_call,
        [this, per_call, work = std::move(work)](std::int64_t chunk) {
          expert_ffn(std::span(work).subspan(at(chunk * per_call), at(per_call)), x_.data(), hidden_.data(), y_.data());
        });
  }

  // Small matrices go many to a call, as those of successive layers.
  void add_linear(StoredType type, const LinearShape& shape, std::int64_t num_rows) {
    constexpr std::int64_t wanted_bytes = std::int64_t{64} << 20;
    const std::int64_t matrix_bytes = packed_bytes(type, shape.out, shape.in);
    const std::int64_t num_matrices = std::max<std::int64_t>(weights_.num_bytes() / matrix_bytes, 1);
    const std::int64_t per_call = std::min(ceil_div(wanted_bytes, matrix_bytes), num_matrices);
    add({shape.name, type, num_rows, shape.out * shape.in}, matrix_bytes, per_call, [=, this](std::int64_t chunk) {
      for (std::int64_t matrix = chunk * per_call; matrix < (chunk + 1) * per_call; ++matrix) {
        linear(x_.data(), num_rows, {bytes() + matrix * matrix_bytes, type, shape.out, shape.in}, y_.data());
      }
    });
  }

  KernelSetting run() {
    reading_.choose_order();
    KernelSetting setting{name_of(simd_level()), num_kernel_threads(), reading_.order(), {}};
    for (std::int64_t repetition = 0; repetition < options_.repetitions; ++repetition) {
      for (Contestant& contestant : contestants_) {
        time_pass(contestant);
      }
    }
    for (const Contestant& contestant : contestants_) {
      setting.timings.push_back(timing_of(contestant));
    }
    return setting;
  }

 private:
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(weights_.data()); }

  void add(KernelTiming timing, std::int64_t unit_bytes, std::int64_t units_of_chunk,
           std::function<void(std::int64_t)> run) {
    timing.bytes = static_cast<double>(unit_bytes);
    const std::int64_t num_chunks = std::max<std::int64_t>(weights_.num_bytes() / (unit_bytes * units_of_chunk), 1);
    contestants_.push_back({std::move(timing), units_of_chunk, num_chunks, std::move(run), {}, {}, {}});
  }

  // Reads and computes by turns, on chunks far from each other: neither finds in a cache what the other one read.
  void time_pass(Contestant& contestant) {
    const std::int64_t chunk_bytes = contestant.chunk_bytes();
    contestant.peaks.push_back(peak_of_host());
    for (std::int64_t chunk = 0; chunk < contestant.num_chunks; ++chunk) {
      const std::int64_t far_chunk = (chunk + contestant.num_chunks / 2) % contestant.num_chunks;
      contestant.limit_seconds.push_back(reading_.seconds(far_chunk * chunk_bytes, chunk_bytes));
      contestant.seconds.push_back(seconds_of([&] { contestant.run(chunk); }));
    }
  }

  // GFLOP/s of arithmetic alone, where that is what kernels run on; else 0.
  static double peak_of_host() {
    if (!kernels_use_host_memory()) {
      return 0.0;
    }
    constexpr std::int64_t num_steps = 1 << 19;
    std::int64_t flops = 0;
    const double peak_seconds = seconds_of([&flops] { flops = run_multiply_adds(num_steps); });
    return 1e-9 * static_cast<double>(flops) / peak_seconds;
  }

  static KernelTiming timing_of(const Contestant& contestant) {
    KernelTiming timing = contestant.timing;
    const auto units = static_cast<double>(contestant.units_of_chunk);
    const double gigabytes = timing.bytes * units * 1e-9;
    timing.us_min = least_of(contestant.seconds) * 1e6 / units;
    timing.us_median = median_of(contestant.seconds) * 1e6 / units;
    timing.gb_per_s_max = gigabytes / least_of(contestant.seconds);
    timing.gb_per_s_median = gigabytes / median_of(contestant.seconds);
    timing.limit_max = gigabytes / least_of(contestant.limit_seconds);
    timing.limit_median = gigabytes / median_of(contestant.limit_seconds);
    const auto flops = 2e-9 * static_cast<double>(timing.num_weights * timing.num_rows) * units;
    timing.gflop_per_s_median = flops / median_of(contestant.seconds);
    timing.peak_gflop_per_s = median_of(contestant.peaks);
    return timing;
  }

  const KernelBenchOptions& options_;
  Buffer<std::uint64_t> weights_;
  Buffer<float> x_, hidden_, y_;
  ReadSpeed reading_{{weights_.data(), at(weights_.size())}};
  std::vector<Contestant> contestants_;
};

}  // namespace

KernelSetting time_kernels(const KernelBenchOptions& options, const KernelShapes& shapes, const std::string& simd,
                           std::int64_t num_threads) {
  set_simd_level(simd_level_of(simd));
  set_num_kernel_threads(num_threads);
  Bench bench(options, shapes);
  // What is to be compared lies side by side.
  for (const std::int64_t num_rows : options.rows) {
    for (const std::string& type : options.stored_types) {
      bench.add_experts(bench_type_of(type), shapes, num_rows);
    }
  }
  for (const LinearShape& linear : shapes.linears) {
    for (const std::int64_t num_rows : options.rows) {
      for (const std::string& type : options.stored_types) {
        bench.add_linear(bench_type_of(type), linear, num_rows);
      }
    }
  }
  return bench.run();
}

}  // namespace metro
