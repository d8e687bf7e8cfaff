// The angles of RoPE in their published forms, rounded as transformers does (inverse frequencies in fp32), so that
// tokens of long contexts agree with it.
#pragma once

#include "model/model_spec.hpp"

#include <cstdint>

namespace metro {

// theta^(-2i / dims).
RopeFactors plain_rope(double theta, std::int64_t dims);

// YaRN (arXiv 2309.00071), with the attention factors of DeepSeek where its fields are given.
struct YarnSettings {
  double factor = 1.0;  // by which the context is stretched
  double beta_fast = 32.0, beta_slow = 1.0;
  std::int64_t original_positions = 0;
  bool truncates = true;          // the ends of the ramp are rounded outwards to whole pairs
  double mscale = 0.0;            // 0: not given
  double mscale_all_dim = 0.0;    // likewise
  double attention_factor = 0.0;  // likewise; else the scale of cos and sin
};
RopeFactors yarn_rope(double theta, std::int64_t dims, const YarnSettings& settings);

// By which DeepSeek multiplies the scores of attention as well: 1 without mscale_all_dim.
double yarn_score_scale(const YarnSettings& settings);

}  // namespace metro
