#include "decoder/rope_table.hpp"

#include "base/integers.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace metro {

namespace {

std::int64_t floats_of(const ModelSpec& spec, std::int64_t num_positions) {
  return num_positions * (spec.attention.head_dim / 2);
}

// Numbers of the table: cos [num_positions, num_pairs], then sin likewise.
class RopeAngles {
 public:
  RopeAngles(const ModelSpec& spec, std::int64_t num_positions)
      : num_positions_(num_positions), num_pairs_(spec.attention.head_dim / 2) {
    for (std::int64_t pair = 0; pair < num_pairs_; ++pair) {
      const float exponent = static_cast<float>(2 * pair) / static_cast<float>(spec.attention.head_dim);
      const auto power = static_cast<float>(std::pow(spec.rope.theta, static_cast<double>(exponent)));
      inverse_frequencies_.push_back(1.0F / power);
    }
  }

  // values = those from `first` on.
  void fill(std::int64_t first, std::span<float> values) const {
    for (float& value : values) {
      const bool is_cosine = first < num_positions_ * num_pairs_;
      const std::int64_t position = first / num_pairs_ % num_positions_;
      const float angle = static_cast<float>(position) * inverse_frequencies_[at(first % num_pairs_)];
      value =
          static_cast<float>(is_cosine ? std::cos(static_cast<double>(angle)) : std::sin(static_cast<double>(angle)));
      ++first;
    }
  }

 private:
  std::int64_t num_positions_, num_pairs_;
  std::vector<float> inverse_frequencies_;  // [num_pairs]
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
