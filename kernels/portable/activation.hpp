// What joins the two halves of an expert's first layer (base/model_forms.hpp). Includes no Kokkos: host units use it
// too.
#pragma once

#include "base/model_forms.hpp"
#include "kernels/portable/math.hpp"

namespace metro::portable {

// With g = gate, at most limit, and u = up, within -limit .. limit:  (u + 1) * (g / (1 + e^(-1.702 g))).
METRO_HOST_DEVICE_FORCE_INLINE float clamped_swiglu(float gate, float up, float limit) {
  const float g = gate > limit ? limit : gate;  // comparisons that are false for NaN
  const float below = up > limit ? limit : up;
  const float u = below < -limit ? -limit : below;
  return (u + 1.0F) * (g / (1.0F + exp_of(-(1.702F * g))));
}

METRO_HOST_DEVICE_FORCE_INLINE float activated(const Activation& activation, float gate, float up) {
  return activation.kind == ActivationKind::silu ? silu(gate) * up : clamped_swiglu(gate, up, activation.limit);
}

}  // namespace metro::portable
