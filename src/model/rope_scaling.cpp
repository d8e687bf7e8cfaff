#include "model/rope_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace metro {

namespace {

// theta^(2i / dims), the exponent and the power rounded to fp32.
float power_of(double theta, std::int64_t pair, std::int64_t dims) {
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(dims);
  return static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
}

// The pair (not whole) that turns `rotations` times within the original context.
double pair_of_rotations(double rotations, double theta, std::int64_t dims, std::int64_t positions) {
  const double wavelength = static_cast<double>(positions) / rotations;
  return static_cast<double>(dims) * std::log(wavelength / (2.0 * std::numbers::pi)) / (2.0 * std::log(theta));
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double scale_of_angles(const YarnSettings& settings) {
  if (settings.attention_factor > 0.0) {
    return settings.attention_factor;
  }
  if (settings.mscale > 0.0 && settings.mscale_all_dim > 0.0) {
    return yarn_mscale(settings.factor, settings.mscale) / yarn_mscale(settings.factor, settings.mscale_all_dim);
  }
  return yarn_mscale(settings.factor, 1.0);
}

}  // namespace

RopeFactors plain_rope(double theta, std::int64_t dims) {
  RopeFactors factors;
  for (std::int64_t pair = 0; pair < dims / 2; ++pair) {
    factors.inverse_frequencies.push_back(1.0F / power_of(theta, pair, dims));
  }
  return factors;
}

RopeFactors yarn_rope(double theta, std::int64_t dims, const YarnSettings& settings) {
  const auto last = static_cast<double>(dims - 1);
  double first_blended = pair_of_rotations(settings.beta_fast, theta, dims, settings.original_positions);
  double end_blended = pair_of_rotations(settings.beta_slow, theta, dims, settings.original_positions);
  if (settings.truncates) {
    first_blended = std::floor(first_blended);
    end_blended = std::ceil(end_blended);
  }
  first_blended = std::max(first_blended, 0.0);
  end_blended = std::min(end_blended, last);
  if (first_blended == end_blended) {
    end_blended += 0.001;
  }
  RopeFactors factors;
  factors.scale = static_cast<float>(scale_of_angles(settings));
  const auto width = static_cast<float>(end_blended - first_blended);
  for (std::int64_t pair = 0; pair < dims / 2; ++pair) {
    const float power = power_of(theta, pair, dims);
    const float stretched = 1.0F / (static_cast<float>(settings.factor) * power);
    const float place = (static_cast<float>(pair) - static_cast<float>(first_blended)) / width;
    const float kept = 1.0F - std::clamp(place, 0.0F, 1.0F);  // share that is not stretched
    factors.inverse_frequencies.push_back(stretched * (1.0F - kept) + 1.0F / power * kept);
  }
  return factors;
}

double yarn_score_scale(const YarnSettings& settings) {
  if (settings.mscale_all_dim <= 0.0) {
    return 1.0;
  }
  const double mscale = yarn_mscale(settings.factor, settings.mscale_all_dim);
  return mscale * mscale;
}

}  // namespace metro
