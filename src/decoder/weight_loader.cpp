#include "decoder/weight_loader.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "base/threads.hpp"
#include "checkpoint/layout.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

namespace metro {

namespace {

// What a thread reads at a time: well within the private cache of a core, and far above what a system call costs.
constexpr std::int64_t wanted_piece_bytes = std::int64_t{384} << 10;

std::int64_t stored_bytes(StoredType type, const UnitPart& part) {
  return part.out * part.in * bytes_of(type);
}

// Rows of a part that are read at a time: whole panels.
std::int64_t rows_of_piece(StoredType type, const UnitPart& part) {
  const std::int64_t panel_bytes = panel_columns * part.in * bytes_of(type);
  return panel_columns * std::max<std::int64_t>(wanted_piece_bytes / std::max<std::int64_t>(panel_bytes, 1), 1);
}

std::int64_t piece_bytes(StoredType type, const UnitPart& part) {
  return std::min(rows_of_piece(type, part), part.out) * part.in * bytes_of(type);
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

// scales [part.out] of an int8 part, else nullptr.
void load_part(UnitReader& unit, StoredType type, const UnitPart& part, const float* scales,
               std::span<std::byte> staging) {
  const std::int64_t rows_at_once = rows_of_piece(type, part);
  std::byte* destination = part.destination;
  for (std::int64_t row = 0; row < part.out; row += rows_at_once) {
    const UnitPart piece{std::min(rows_at_once, part.out - row), part.in, destination, part.as_floats};
    const auto stored = staging.first(at(stored_bytes(type, piece)));
    unit.read(stored);
    if (part.as_floats) {
      widen(type, stored, destination);
    } else {
      pack(type, piece.out, piece.in, stored.data(), scales == nullptr ? nullptr : scales + row, destination);
    }
    destination += part_bytes(type, piece);
  }
}

std::vector<float> load_scales(const WeightReader& reader, const WeightUnit& unit) {
  std::vector<float> scales;
  if (unit.scales != nullptr) {
    scales.resize(at(unit.scales->unit_bytes()) / sizeof(float));
    UnitReader(reader, *unit.scales, unit.unit_idx).read(std::as_writable_bytes(std::span(scales)));
  }
  return scales;
}

void load_unit(const WeightReader& reader, const WeightUnit& unit, std::span<std::byte> staging) {
  const std::vector<float> scales = load_scales(reader, unit);
  UnitReader unit_reader(reader, *unit.tensor, unit.unit_idx);
  std::int64_t row = 0;
  for (const UnitPart& part : unit.parts) {
    METRO_REQUIRE(scales.empty() || row + part.out <= std::ssize(scales), unit.tensor->dataset);
    load_part(unit_reader, unit.tensor->type, part, scales.empty() ? nullptr : scales.data() + row, staging);
    row += part.out;
  }
  METRO_REQUIRE(unit_reader.bytes_left() == 0, unit.tensor->dataset);
}

}  // namespace

WeightUnit weight_unit(const WeightReader& reader, const TensorInfo& tensor, std::int64_t unit_idx,
                       std::vector<UnitPart> parts) {
  const TensorInfo* scales = tensor.type == StoredType::int8 ? &reader.info(layout::scale_of(tensor.dataset)) : nullptr;
  return {&tensor, scales, unit_idx, std::move(parts)};
}

std::int64_t part_bytes(StoredType type, const UnitPart& part) {
  return part.as_floats ? part.out * part.in * static_cast<std::int64_t>(sizeof(float))
                        : packed_bytes(type, part.out, part.in);
}

void load_units(const WeightReader& reader, std::vector<WeightUnit> units, std::int64_t num_threads) {
  std::stable_sort(units.begin(), units.end(),
                   [](const WeightUnit& a, const WeightUnit& b) { return a.place_in_file() < b.place_in_file(); });
  std::int64_t staging_bytes = 0;
  for (const WeightUnit& unit : units) {
    for (const UnitPart& part : unit.parts) {
      staging_bytes = std::max(staging_bytes, piece_bytes(unit.tensor->type, part));
    }
  }
  std::vector<std::unique_ptr<std::byte[]>> staging_of_thread(at(num_threads));
  for_each_on_threads(std::ssize(units), num_threads, [&](std::int64_t item, std::int64_t thread_idx) {
    std::unique_ptr<std::byte[]>& staging = staging_of_thread[at(thread_idx)];
    if (staging == nullptr) {
      staging = std::make_unique_for_overwrite<std::byte[]>(at(staging_bytes));
    }
    load_unit(reader, units[at(item)], {staging.get(), at(staging_bytes)});
  });
}

}  // namespace metro
