#include "decoder/rope_table.hpp"

#include "base/integers.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace metro {

namespace {

std::int64_t floats_of(const ModelSpec& spec, std::int64_t num_positions) {
  return num_positions * (spec.attention.head_dim / 2);
}

void fill(const ModelSpec& spec, std::int64_t num_positions, std::span<float> cos, std::span<float> sin) {
  const std::int64_t num_pairs = spec.attention.head_dim / 2;
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
    const float exponent = static_cast<float>(2 * pair) / static_cast<float>(spec.attention.head_dim);
    const auto power = static_cast<float>(std::pow(spec.rope.theta, static_cast<double>(exponent)));
    const float inverse_frequency = 1.0F / power;
    for (std::int64_t position = 0; position < num_positions; ++position) {
      const float angle = static_cast<float>(position) * inverse_frequency;
      cos[at(position * num_pairs + pair)] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sin[at(position * num_pairs + pair)] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

// What rank 0 has in `table` to all ranks, where one rank of those that share a table writes it.
void broadcast(std::span<float> table, bool writes, Transport& transport) {
  constexpr std::size_t piece_floats = std::size_t{1} << 18;
  std::vector<float> piece(std::min(piece_floats, table.size()));
  for (std::size_t offset = 0; offset < table.size(); offset += piece_floats) {
    const auto part = table.subspan(offset, std::min(piece_floats, table.size() - offset));
    const auto received = std::span(piece).first(part.size());
    if (transport.rank() == 0) {
      std::copy(part.begin(), part.end(), received.begin());
    }
    transport.broadcast(std::as_writable_bytes(received), 0);
    if (writes && transport.rank() != 0) {
      std::copy(received.begin(), received.end(), part.begin());
    }
  }
}

}  // namespace

RopeTable::RopeTable(const ModelSpec& spec, std::int64_t num_positions, Sharing sharing, Transport& transport)
    : memory_("rope table", planned_bytes(spec, num_positions), sharing, transport) {
  const std::size_t num_floats = at(floats_of(spec, num_positions));
  const std::span<float> both(reinterpret_cast<float*>(memory_.bytes().data()), 2 * num_floats);
  if (transport.rank() == 0) {
    fill(spec, num_positions, both.first(num_floats), both.last(num_floats));
  }
  broadcast(both, memory_.sharer_idx() == 0, transport);
  memory_.publish();
  cos_ = both.first(num_floats);
  sin_ = both.last(num_floats);
}

std::int64_t RopeTable::planned_bytes(const ModelSpec& spec, std::int64_t num_positions) {
  return 2 * floats_of(spec, num_positions) * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace metro
