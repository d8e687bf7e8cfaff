#include "decoder/rope_table.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace metro {

namespace {

std::int64_t floats_of(const ModelSpec& spec, std::int64_t num_positions) {
  return std::ssize(spec.rope.sets) * num_positions * (spec.rope_dims() / 2);
}

// Numbers of the table: cos [num_sets, num_positions, num_pairs], then sin likewise.
class RopeAngles {
 public:
  RopeAngles(const ModelSpec& spec, std::int64_t num_positions)
      : sets_(spec.rope.sets), num_positions_(num_positions), num_pairs_(spec.rope_dims() / 2) {
    METRO_REQUIRE(!sets_.empty() && std::ssize(sets_) == (spec.rope.switch_at > 0 ? 2 : 1), "sets of angles");
    for (const RopeFactors& set : sets_) {
      METRO_REQUIRE(std::ssize(set.inverse_frequencies) == num_pairs_, "inverse frequencies");
    }
  }

  // values = those from `first` on.
  void fill(std::int64_t first, std::span<float> values) const {
    const std::int64_t of_set = num_positions_ * num_pairs_;
    const std::int64_t of_half = std::ssize(sets_) * of_set;
    for (float& value : values) {
      const RopeFactors& set = sets_[at(first % of_half / of_set)];
      const std::int64_t position = first / num_pairs_ % num_positions_;
      const float angle = static_cast<float>(position) * set.inverse_frequencies[at(first % num_pairs_)];
      const auto wide = static_cast<double>(angle);
      value = static_cast<float>(first < of_half ? std::cos(wide) : std::sin(wide)) * set.scale;
      ++first;
    }
  }

 private:
  std::vector<RopeFactors> sets_;
  std::int64_t num_positions_, num_pairs_;
};

}  // namespace

RopeTable::RopeTable(const ModelSpec& spec, std::int64_t num_positions, Sharing sharing, Transport& transport)
    : memory_("rope table", planned_bytes(spec, num_positions), sharing, transport) {
  constexpr std::int64_t piece_floats = std::int64_t{1} << 18;
  const std::int64_t num_floats = floats_of(spec, num_positions);
  auto* const table = reinterpret_cast<float*>(memory_.bytes().data());
  const RopeAngles angles(spec, num_positions);
  std::vector<float> piece(at(std::min(piece_floats, 2 * num_floats)));
  for (std::int64_t first = 0; first < 2 * num_floats; first += piece_floats) {
    const auto part = std::span(piece).first(at(std::min(piece_floats, 2 * num_floats - first)));
    if (transport.rank() == 0) {
      angles.fill(first, part);
    }
    transport.broadcast(std::as_writable_bytes(part), 0);
    if (memory_.sharer_idx() == 0) {  // one of those that share a table writes it
      copy_from_host(table + first, std::span<const float>(part));
    }
  }
  memory_.publish();
  cos_ = table;
  sin_ = table + num_floats;
}

std::int64_t RopeTable::planned_bytes(const ModelSpec& spec, std::int64_t num_positions) {
  return 2 * floats_of(spec, num_positions) * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace metro
