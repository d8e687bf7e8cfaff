// Times loading and plain reads in turn.
#include "base/integers.hpp"
#include "base/threads.hpp"
#include "bench/load_bench.hpp"
#include "bench/read_speed.hpp"
#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/file_descriptor.hpp"
#include "decoder/dense_weights.hpp"
#include "decoder/expert_store.hpp"
#include "kernels/queue.hpp"
#include "placement/moves.hpp"
#include "placement/placement.hpp"
#include "transport/agree.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace metro {

namespace {

class LoadBench {
 public:
  LoadBench(const LoadBenchOptions& options, Transport& transport)
      : options_(options),
        transport_(&transport),
        checkpoint_(options.checkpoint_path),
        file_(FileDescriptor::open_to_read(options.checkpoint_path, ExitCode::checkpoint)),
        placement_(placement_of(checkpoint_.spec(), transport)),
        memory_("weights to load", bytes_of_memory(), FirstContent::unspecified),
        units_(make_units()) {
    for (const WeightUnit& unit : units_) {
      num_bytes_ += unit.num_bytes();
    }
  }

  LoadTimes run() {
    LoadTimes times;
    times.bytes_max = num_bytes_;
    times.bytes_sum = num_bytes_;
    transport_->all_reduce_max({&times.bytes_max, 1});
    transport_->all_reduce_sum({&times.bytes_sum, 1});
    agree(*transport_, [&] { warm_page_cache(); });
    times.first_load_s = seconds_of_slowest([&] { load(options_.threads.front()); });
    for (const std::int64_t num_threads : options_.threads) {
      times.results.push_back({num_threads, {}});
    }
    for (std::int64_t repetition = 0; repetition < options_.repetitions; ++repetition) {
      for (LoadResult& result : times.results) {
        LoadSample sample;
        sample.plain_s = seconds_of_slowest([&] { read_plainly(result.num_threads); });
        sample.load_s = seconds_of_slowest([&] { load(result.num_threads); });
        result.samples.push_back(sample);
      }
    }
    return times;
  }

 private:
  static Placement placement_of(const ModelSpec& spec, const Transport& transport) {
    return place_trivial(spec.num_moe_layers(), spec.moe.num_experts, transport.size(),
                         slots_for_replication(spec.moe.num_experts, transport.size(), 1.0));
  }

  std::int64_t bytes_of_memory() const {
    return DenseWeights::planned_bytes(checkpoint_) +
           resident_expert_bytes(checkpoint_, placement_, transport_->rank(), false);
  }

  // What a rank loads, into memory_.
  std::vector<WeightUnit> make_units() const {
    const std::span<std::byte> memory(memory_.data(), at(memory_.num_bytes()));
    const std::size_t dense_bytes = at(DenseWeights::planned_bytes(checkpoint_));
    std::vector<WeightUnit> units = dense_units(checkpoint_, memory.first(dense_bytes));
    std::span<std::byte> left = memory.subspan(dense_bytes);
    const std::vector<std::int64_t> layers = moe_layers_of(checkpoint_.spec());
    for (std::size_t moe_layer = 0; moe_layer < layers.size(); ++moe_layer) {
      const std::size_t expert_bytes = at(packed_expert_bytes(checkpoint_, layers[moe_layer]));
      for (const std::int32_t expert :
           hosted_experts(placement_, static_cast<std::int64_t>(moe_layer), transport_->rank())) {
        add_expert_units(checkpoint_, layers[moe_layer], expert, left.first(expert_bytes), units);
        left = left.subspan(expert_bytes);
      }
    }
    std::stable_sort(units.begin(), units.end(),
                     [](const WeightUnit& a, const WeightUnit& b) { return a.place_in_file() < b.place_in_file(); });
    return units;
  }

  void warm_page_cache() const {
    std::vector<std::byte> piece(std::size_t{1} << 20);
    for (const WeightUnit& unit : units_) {
      for (std::int64_t done = 0; done < unit.tensor->unit_bytes(); done += std::ssize(piece)) {
        const std::int64_t left = std::min(unit.tensor->unit_bytes() - done, std::ssize(piece));
        file_.read_at(unit.place_in_file() + done, std::span(piece).first(at(left)), ExitCode::checkpoint);
      }
    }
  }

  // Every unit to where it is loaded to, which has room for it: packed weights are no smaller than stored ones. If that
  // is the memory of a device, only as far as the host.
  void read_plainly(std::int64_t num_threads) const {
    std::vector<std::vector<std::byte>> bytes_of_thread(at(num_threads));
    for_each_on_threads(std::ssize(units_), num_threads, [&](std::int64_t i, std::int64_t thread_idx) {
      const WeightUnit& unit = units_[at(i)];
      std::byte* destination = unit.parts.front().destination;
      if (!kernels_use_host_memory()) {
        std::vector<std::byte>& bytes = bytes_of_thread[at(thread_idx)];
        bytes.resize(std::max(bytes.size(), at(unit.num_bytes())));
        destination = bytes.data();
      }
      file_.read_at(unit.place_in_file(), {destination, at(unit.tensor->unit_bytes())}, ExitCode::checkpoint);
      if (unit.scales != nullptr) {
        file_.read_at(unit.scales->file_offset + unit.unit_idx * unit.scales->unit_bytes(),
                      {destination + unit.tensor->unit_bytes(), at(unit.scales->unit_bytes())}, ExitCode::checkpoint);
      }
    });
  }

  void load(std::int64_t num_threads) const { load_units(checkpoint_, units_, num_threads); }

  double seconds_of_slowest(const std::function<void()>& work) const {
    transport_->barrier();
    double seconds = 0.0;
    agree(*transport_, [&] { seconds = seconds_of(work); });
    auto nanoseconds = static_cast<std::int64_t>(seconds * 1e9);
    transport_->all_reduce_max({&nanoseconds, 1});
    return 1e-9 * static_cast<double>(nanoseconds);
  }

  const LoadBenchOptions& options_;
  Transport* transport_;
  CheckpointReader checkpoint_;
  FileDescriptor file_;
  Placement placement_;
  RawBuffer memory_;
  std::vector<WeightUnit> units_;
  std::int64_t num_bytes_ = 0;
};

}  // namespace

LoadTimes time_loading(const LoadBenchOptions& options, Transport& transport) {
  std::optional<LoadBench> bench;
  agree(transport, [&] { bench.emplace(options, transport); });
  return bench->run();
}

}  // namespace metro
