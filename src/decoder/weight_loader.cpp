#include "decoder/weight_loader.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "base/threads.hpp"
#include "checkpoint/layout.hpp"
#include "kernels/buffer.hpp"
#include "kernels/queue.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

namespace metro {

namespace {

// What a thread reads at a time: well within the private cache of a core, and far above what a system call costs.
constexpr std::int64_t wanted_piece_bytes = std::int64_t{384} << 10;

std::int64_t stored_bytes(StoredType type, const UnitPart& part) {
  return bytes_of(type, part.out * part.in);
}

// Rows of a part that are read at a time: whole panels, or all if they are to be transposed.
std::int64_t rows_of_piece(StoredType type, const UnitPart& part) {
  if (part.has_transposed) {
    return part.out;
  }
  const std::int64_t panel_bytes = bytes_of(type, panel_columns * part.in);
  return panel_columns * std::max<std::int64_t>(wanted_piece_bytes / std::max<std::int64_t>(panel_bytes, 1), 1);
}

// The largest piece of a part.
UnitPart largest_piece(StoredType type, const UnitPart& part) {
  return {std::min(rows_of_piece(type, part), part.out), part.in, nullptr, part.as_floats, part.has_bias};
}

void widen(StoredType type, std::span<const std::byte> stored, std::byte* destination) {
  if (type == StoredType::f32) {
    std::memcpy(destination, stored.data(), stored.size());
    return;
  }
  for (std::size_t i = 0; i < stored.size() / 2; ++i) {
    std::uint16_t word = 0;
    std::memcpy(&word, stored.data() + 2 * i, sizeof word);
    const float value = widen_bf16(word);
    std::memcpy(destination + i * sizeof value, &value, sizeof value);
  }
}

// Where a thread packs the pieces of weights: at their destination, or, if that is the memory of a device, in memory
// from which they are copied there. Threads take turns at the queue.
class PackingPlace {
 public:
  PackingPlace(std::int64_t most_bytes, std::mutex& queue) : queue_(&queue) {
    if (!kernels_use_host_memory()) {
      const std::lock_guard lock(queue);
      pinned_ = PinnedBuffer("weights on their way to the device", most_bytes);
    }
  }

  // Room for the piece that belongs at `destination`. The piece before may be on its way until then.
  std::byte* begin(std::byte* destination) {
    if (kernels_use_host_memory()) {
      return destination;
    }
    const std::lock_guard lock(*queue_);
    wait_for_kernels();
    return pinned_.data();
  }

  // The piece is packed.
  void end(std::byte* destination, std::int64_t num_bytes) {
    if (!kernels_use_host_memory()) {
      const std::lock_guard lock(*queue_);
      queue_copy_to_kernels(destination, pinned_.data(), num_bytes);
    }
  }

 private:
  std::mutex* queue_;
  PinnedBuffer pinned_;
};

// What a thread works with.
struct Workplace {
  Workplace(std::int64_t most_stored_bytes, std::int64_t most_packed_bytes, std::mutex& queue)
      : stored(std::make_unique_for_overwrite<std::byte[]>(at(most_stored_bytes))), packing(most_packed_bytes, queue) {}

  std::unique_ptr<std::byte[]> stored;  // a piece as it was read
  PackingPlace packing;
};

// From row `row` of a matrix on, the first of a panel.
ColumnNumbers from_row(StoredType type, const ColumnNumbers& numbers, std::int64_t row, std::int64_t in) {
  const std::int64_t scales_before = type == StoredType::fp8 ? row / panel_columns * ceil_div(in, fp8_block) : row;
  return {numbers.scales == nullptr ? nullptr : numbers.scales + scales_before,
          numbers.biases == nullptr ? nullptr : numbers.biases + row,
          numbers.exponents == nullptr ? nullptr : numbers.exponents + row * (in / mxfp4_block)};
}

// `stored` [out, in] as [in, out].
std::vector<std::byte> transposed(StoredType type, const UnitPart& part, std::span<const std::byte> stored) {
  const auto element = at(bytes_of(type, 1));
  std::vector<std::byte> turned(stored.size());
  for (std::int64_t row = 0; row < part.out; ++row) {
    for (std::int64_t column = 0; column < part.in; ++column) {
      std::memcpy(turned.data() + at(column * part.out + row) * element,
                  stored.data() + at(row * part.in + column) * element, element);
    }
  }
  return turned;
}

// numbers: of the part's rows.
void load_part(UnitReader& unit, StoredType type, const UnitPart& part, const ColumnNumbers& numbers,
               Workplace& workplace) {
  const std::int64_t rows_at_once = rows_of_piece(type, part);
  std::byte* destination = part.destination;
  for (std::int64_t row = 0; row < part.out; row += rows_at_once) {
    const UnitPart piece{std::min(rows_at_once, part.out - row), part.in, destination, part.as_floats, part.has_bias};
    const std::span<std::byte> stored(workplace.stored.get(), at(stored_bytes(type, piece)));
    unit.read(stored);
    std::byte* const packed = workplace.packing.begin(destination);
    if (part.as_floats) {
      widen(type, stored, packed);
    } else {
      pack(type, piece.out, piece.in, stored.data(), from_row(type, numbers, row, part.in), packed);
    }
    workplace.packing.end(destination, part_bytes(type, piece));
    destination += part_bytes(type, piece);
    if (part.has_transposed) {
      std::byte* const turned = workplace.packing.begin(part.transposed);
      pack(type, part.in, part.out, transposed(type, part, stored).data(), turned);
      workplace.packing.end(part.transposed, transposed_bytes(type, part));
    }
  }
}

// A whole unit of `tensor`, bf16 or f32; nothing if there is no tensor.
std::vector<float> load_numbers(const WeightReader& reader, const TensorInfo* tensor, std::int64_t unit_idx) {
  if (tensor == nullptr) {
    return {};
  }
  std::vector<std::byte> stored(at(tensor->unit_bytes()));
  UnitReader(reader, *tensor, unit_idx).read(stored);
  std::vector<float> numbers(stored.size() / at(bytes_of(tensor->type, 1)));
  widen(tensor->type, stored, std::as_writable_bytes(std::span(numbers)).data());
  return numbers;
}

// What belongs to the output columns of all parts of a unit, as stored, and cut into what belongs to one part.
class UnitNumbers {
 public:
  UnitNumbers(const WeightReader& reader, const WeightUnit& unit)
      : type_(unit.tensor->type), biases_(load_numbers(reader, unit.biases, unit.unit_idx)) {
    if (type_ != StoredType::mxfp4) {
      scales_ = load_numbers(reader, unit.scales, unit.unit_idx);
      return;
    }
    exponents_.resize(at(unit.scales->unit_bytes()));
    UnitReader(reader, *unit.scales, unit.unit_idx).read(std::as_writable_bytes(std::span(exponents_)));
  }

  // Of the next part. Valid until the part after it is asked for.
  ColumnNumbers next(const UnitPart& part) {
    const std::int64_t scales_begin = scales_done_;
    const std::int64_t row_scales = type_ == StoredType::mxfp4 ? part.in / mxfp4_block : 1;
    scales_done_ +=
        type_ == StoredType::fp8 ? ceil_div(part.out, fp8_block) * ceil_div(part.in, fp8_block) : part.out * row_scales;
    const std::int64_t row = rows_done_;
    rows_done_ += part.out;
    METRO_REQUIRE((scales_.empty() || scales_done_ <= std::ssize(scales_)) &&
                      (exponents_.empty() || scales_done_ <= std::ssize(exponents_)) &&
                      (biases_.empty() || rows_done_ <= std::ssize(biases_)),
                  "fewer scales or biases than rows");
    ColumnNumbers numbers;
    numbers.biases = biases_.empty() ? nullptr : biases_.data() + row;
    numbers.exponents = exponents_.empty() ? nullptr : exponents_.data() + scales_begin;
    if (!scales_.empty()) {
      numbers.scales =
          type_ == StoredType::fp8 ? of_panels(scales_.data() + scales_begin, part) : scales_.data() + scales_begin;
    }
    return numbers;
  }

 private:
  // The scales of fp8 blocks repeated for every panel.
  const float* of_panels(const float* of_blocks, const UnitPart& part) {
    const std::int64_t row_blocks = ceil_div(part.in, fp8_block);
    panel_scales_.clear();
    for (std::int64_t row = 0; row < part.out; row += panel_columns) {
      const float* begin = of_blocks + row / fp8_block * row_blocks;
      panel_scales_.insert(panel_scales_.end(), begin, begin + row_blocks);
    }
    return panel_scales_.data();
  }

  StoredType type_;
  std::vector<float> scales_, biases_, panel_scales_;
  std::vector<std::int8_t> exponents_;
  std::int64_t scales_done_ = 0, rows_done_ = 0;
};

void load_unit(const WeightReader& reader, const WeightUnit& unit, Workplace& workplace) {
  UnitNumbers numbers(reader, unit);
  UnitReader unit_reader(reader, *unit.tensor, unit.unit_idx);
  for (const UnitPart& part : unit.parts) {
    load_part(unit_reader, unit.tensor->type, part, numbers.next(part), workplace);
  }
  METRO_REQUIRE(unit_reader.bytes_left() == 0, unit.tensor->dataset);
}

}  // namespace

WeightUnit weight_unit(const WeightReader& reader, const TensorInfo& tensor, std::int64_t unit_idx,
                       std::vector<UnitPart> parts) {
  const TensorInfo* scales = has_scales(tensor.type) ? &reader.info(layout::scale_of(tensor.dataset)) : nullptr;
  const auto found = reader.tensors().find(layout::bias_of(tensor.dataset));
  const bool has_bias = found != reader.tensors().end() && is_packed_with_weights(reader, found->second);
  for (UnitPart& part : parts) {
    part.has_bias = has_bias;
  }
  return {&tensor, scales, has_bias ? &found->second : nullptr, unit_idx, std::move(parts)};
}

bool is_packed_with_weights(const WeightReader& reader, const TensorInfo& tensor) {
  if (layout::is_scale(tensor.dataset)) {
    return true;
  }
  if (!layout::is_bias(tensor.dataset)) {
    return false;
  }
  const TensorInfo& weights = reader.info(layout::weights_of(tensor.dataset));
  return std::ssize(weights.shape) - (weights.is_expert_tensor ? 1 : 0) == 2;
}

std::int64_t part_bytes(StoredType type, const UnitPart& part) {
  return part.as_floats ? part.out * part.in * static_cast<std::int64_t>(sizeof(float))
                        : packed_bytes(type, part.out, part.in, part.has_bias);
}

std::int64_t transposed_bytes(StoredType type, const UnitPart& part) {
  return part.has_transposed ? packed_bytes(type, part.in, part.out) : 0;
}

void load_units(const WeightReader& reader, std::vector<WeightUnit> units, std::int64_t num_threads) {
  std::stable_sort(units.begin(), units.end(),
                   [](const WeightUnit& a, const WeightUnit& b) { return a.place_in_file() < b.place_in_file(); });
  std::int64_t most_stored_bytes = 0, most_packed_bytes = 0;
  for (const WeightUnit& unit : units) {
    for (const UnitPart& part : unit.parts) {
      const UnitPart piece = largest_piece(unit.tensor->type, part);
      most_stored_bytes = std::max(most_stored_bytes, stored_bytes(unit.tensor->type, piece));
      most_packed_bytes = std::max(
          {most_packed_bytes, part_bytes(unit.tensor->type, piece), transposed_bytes(unit.tensor->type, part)});
    }
  }
  wait_for_kernels();  // on this thread, which notices ranks that are gone: the others wait for their own copies alone
  std::mutex queue;
  std::vector<std::unique_ptr<Workplace>> workplace_of_thread(at(num_threads));
  std::exception_ptr failure;
  try {
    for_each_on_threads(std::ssize(units), num_threads, [&](std::int64_t item, std::int64_t thread_idx) {
      std::unique_ptr<Workplace>& workplace = workplace_of_thread[at(thread_idx)];
      if (workplace == nullptr) {
        workplace = std::make_unique<Workplace>(most_stored_bytes, most_packed_bytes, queue);
      }
      load_unit(reader, units[at(item)], *workplace);
    });
  } catch (...) {
    failure = std::current_exception();
  }
  wait_for_kernels();  // the last pieces leave memory that is given back now
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

}  // namespace metro
