// The angles of RoPE in their published forms, rounded as transformers does (inverse frequencies in fp32), so that
// tokens of long contexts agree with it.
#pragma once

#include "model/model_spec.hpp"

#include <cstdint>
#include <vector>

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

// LongRoPE (arXiv 2402.13753): one set of factors for sequences of up to original_positions tokens, one for longer
// ones.
struct LongropeSettings {
  std::vector<double> short_factors, long_factors;  // [dims / 2], by which wavelengths are multiplied
  double short_scale = 1.0, long_scale = 1.0;       // of cos and sin
  std::int64_t original_positions = 0;
  std::int64_t max_positions = 0;
};
// The scale of cos and sin that the paper gives for a context of max_positions: sqrt(1 + ln(s) / ln(original)), s by
// which the context is stretched; 1 if it is not.
double longrope_scale(std::int64_t original_positions, std::int64_t max_positions);
// theta^(-2i / dims) / factors[i] for the short and the long factors; without the latter if no sequence is long enough
// for them.
std::vector<RopeFactors> longrope_sets(double theta, const LongropeSettings& settings);

// By which DeepSeek multiplies the scores of attention as well: 1 without mscale_all_dim.
double yarn_score_scale(const YarnSettings& settings);

}  // namespace metro
