#include "decoder/rope_table.hpp"

#include <cmath>

namespace metro {

RopeTable make_rope_table(const ModelSpec& spec, std::int64_t num_positions, Transport& transport) {
  const std::int64_t num_pairs = spec.attention.head_dim / 2;
  RopeTable table{Buffer<float>("rope cos", num_positions * num_pairs),
                  Buffer<float>("rope sin", num_positions * num_pairs)};
  if (transport.rank() == 0) {
    for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
      const float exponent = static_cast<float>(2 * pair) / static_cast<float>(spec.attention.head_dim);
      const auto power = static_cast<float>(std::pow(spec.rope.theta, static_cast<double>(exponent)));
      const float inverse_frequency = 1.0F / power;
      for (std::int64_t position = 0; position < num_positions; ++position) {
        const float angle = static_cast<float>(position) * inverse_frequency;
        table.cos[position * num_pairs + pair] = static_cast<float>(std::cos(static_cast<double>(angle)));
        table.sin[position * num_pairs + pair] = static_cast<float>(std::sin(static_cast<double>(angle)));
      }
    }
  }
  transport.broadcast(std::as_writable_bytes(table.cos.span()), 0);
  transport.broadcast(std::as_writable_bytes(table.sin.span()), 0);
  return table;
}

}  // namespace metro
