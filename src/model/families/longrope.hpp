// LongRoPE as config.json states it: a table of type "longrope", or "su" as it was called at first.
#pragma once

#include "model/config_fields.hpp"
#include "model/rope_scaling.hpp"

#include <cstdint>

namespace metro {

// Of `table`, rope_scaling or rope_parameters of `config`:
//   short_factor, long_factor         one for each pair of rotated dimensions
//   short_mscale, long_mscale         where they are absent attention_factor, and without that longrope_scale()
//   original_max_position_embeddings  which may stand in config.json itself
// Any other field is refused.
LongropeSettings read_longrope(const ConfigFields& config, const ConfigFields& table);

// rope.sets, switch_at and scaling of heads of `dims` rotated dimensions; rope.theta must be known. Throws
// Error(checkpoint) unless there are dims / 2 factors of each kind.
void set_longrope(const LongropeSettings& settings, std::int64_t dims, RopeSpec& rope);

}  // namespace metro
