// By which arithmetic the experts of prefill steps are computed.
#pragma once

#include "checkpoint/weight_reader.hpp"

#include <string>

namespace metro {

struct PrefillChoice {
  bool grouped_experts = false;  // by GroupedExperts
  std::string text;              // for the start-up table; empty where nothing else was asked for
};

// reproducible: kernels.reproducible. The same on all ranks. Throws Error(usage) for "off" where kernels run on the
// host. Experts that a grouped product does not take are computed as ever, which the text says.
PrefillChoice choose_prefill(const std::string& reproducible, const WeightReader& checkpoint);

}  // namespace metro
