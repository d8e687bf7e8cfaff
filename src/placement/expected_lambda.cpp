// What a placement is worth on a sample of steps: the least lambda of every step, which policy `exact` reaches.
#include "placement/activation_sample.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "placement/lambda_tracker.hpp"

#include <fmt/format.h>

#include <utility>

namespace metro {

std::vector<LayerLambda> expected_lambda(const ActivationSample& sample, const Placement& placement) {
  METRO_REQUIRE(sample.num_layers() == placement.num_layers && sample.num_experts() == placement.num_experts,
                fmt::format("a sample of {} layers, {} experts, a placement of {}, {}", sample.num_layers(),
                            sample.num_experts(), placement.num_layers, placement.num_experts));
  return with_mask_width(placement.num_ranks, [&](auto width) {
    constexpr int num_words = decltype(width)::value;
    std::vector<LayerLambda> layers(at(sample.num_layers()));
    for (std::int64_t layer = 0; layer < sample.num_layers() && sample.num_steps() > 0; ++layer) {
      std::vector<RankMask<num_words>> hosts(at(sample.num_experts()));
      for (std::int64_t slot = 0; slot < placement.num_slots(); ++slot) {
        const std::int32_t expert = placement.layer(layer)[at(slot)];
        if (expert != Placement::empty_slot) {
          hosts[at(expert)].add(slot / placement.slots_per_rank);
        }
      }
      const LambdaTracker<num_words> tracker(sample, layer, std::move(hosts), placement.num_ranks);
      const auto num_steps = static_cast<double>(sample.num_steps());
      layers[at(layer)] = {static_cast<double>(tracker.total()) / num_steps,
                           static_cast<double>(tracker.total_bound()) / num_steps};
    }
    return layers;
  });
}

}  // namespace metro
