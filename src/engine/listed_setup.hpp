// How decode steps run where kernels have memory of their own: by the device alone, or with lists of the host.
#pragma once

#include "deck/deck.hpp"
#include "decoder/routing_settings.hpp"
#include "decoder/row_batch.hpp"
#include "model/model_spec.hpp"
#include "placement/placement.hpp"

#include <string>

namespace metro {

struct ListedChoice {
  ListedSettings settings;
  std::string text;  // for the start-up table; empty where kernels use the memory of the host
};

// limits: all but `listed`. The same on all ranks. Throws Error(usage) where device.decode = "device" cannot be.
ListedChoice choose_listed(const Deck& deck, const ModelSpec& spec, const Placement& placement,
                           const RoutingSettings& routing, const DecoderLimits& limits);

}  // namespace metro
