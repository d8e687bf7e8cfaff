#include "model/families/longrope.hpp"

#include "base/error.hpp"
#include "model/families/common.hpp"

#include <fmt/format.h>

#include <string>

namespace metro {

namespace {

constexpr const char* original_positions_name = "original_max_position_embeddings";
constexpr ConfigFields::Bounds positions_bounds = {2, max_position_limit};  // its logarithm is divided by

std::int64_t read_original_positions(const ConfigFields& config, const ConfigFields& table) {
  if (!config.has(original_positions_name)) {
    return table.integer({original_positions_name}, positions_bounds);
  }
  const std::int64_t positions = config.integer({original_positions_name}, positions_bounds);
  if (table.integer_or({original_positions_name}, positions_bounds, positions) != positions) {
    table.refuse(original_positions_name, fmt::format("contradicts {} = {}", original_positions_name, positions));
  }
  return positions;
}

}  // namespace

LongropeSettings read_longrope(const ConfigFields& config, const ConfigFields& table) {
  table.allow_only_fields({"rope_type", "type", "rope_theta", "partial_rotary_factor", "short_factor", "long_factor",
                           "short_mscale", "long_mscale", "attention_factor", original_positions_name});
  LongropeSettings settings;
  settings.short_factors = table.positive_numbers("short_factor");
  settings.long_factors = table.positive_numbers("long_factor");
  settings.original_positions = read_original_positions(config, table);
  settings.max_positions = config.integer({"max_position_embeddings"}, positions_bounds);
  const double scale =
      table.positive_number_or("attention_factor", longrope_scale(settings.original_positions, settings.max_positions));
  settings.short_scale = table.positive_number_or("short_mscale", scale);
  settings.long_scale = table.positive_number_or("long_mscale", scale);
  return settings;
}

void set_longrope(const LongropeSettings& settings, std::int64_t dims, RopeSpec& rope) {
  for (const auto* factors : {&settings.short_factors, &settings.long_factors}) {
    if (2 * std::ssize(*factors) != dims) {
      throw Error(ExitCode::checkpoint,
                  fmt::format("config.json: rope scaling: {} has {} numbers, must have {}: one for each pair of the {} "
                              "rotated dimensions of a head",
                              factors == &settings.short_factors ? "short_factor" : "long_factor", factors->size(),
                              dims / 2, dims));
    }
  }
  rope.sets = longrope_sets(rope.theta, settings);
  rope.switch_at = rope.sets.size() == 2 ? settings.original_positions : 0;
  rope.scaling = fmt::format("longrope, another one for sequences of more than {} tokens", settings.original_positions);
}

}  // namespace metro
