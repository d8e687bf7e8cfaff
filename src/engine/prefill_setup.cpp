#include "engine/prefill_setup.hpp"

#include "base/error.hpp"
#include "decoder/expert_store.hpp"
#include "kernels/grouped_experts.hpp"

#include <fmt/format.h>

namespace metro {

namespace {

// Why experts of some layer cannot be computed by a grouped product; empty: all can.
std::string why_not_grouped(const WeightReader& checkpoint) {
  const ModelSpec& spec = checkpoint.spec();
  for (std::int64_t layer = 0; layer < spec.num_layers; ++layer) {
    if (spec.layers[static_cast<std::size_t>(layer)] != LayerKind::moe) {
      continue;
    }
    if (std::string why = GroupedExperts::why_not(expert_shape(checkpoint, layer)); !why.empty()) {
      return why;
    }
  }
  return {};
}

}  // namespace

PrefillChoice choose_prefill(const std::string& reproducible, const WeightReader& checkpoint) {
  if (reproducible == "on") {
    return {};
  }
  if (!GroupedExperts::is_supported()) {
    throw Error(ExitCode::usage,
                fmt::format("kernels.reproducible = \"{}\": kernels of this metro run on the host, where they know no "
                            "other way; allowed is \"on\"",
                            reproducible));
  }
  if (const std::string why = why_not_grouped(checkpoint); !why.empty()) {
    return {false, fmt::format("experts by the reproducible kernels in spite of kernels.reproducible: {}", why)};
  }
  return {true, "experts by cuBLAS, activations rounded to bf16: not reproducible (kernels.reproducible)"};
}

}  // namespace metro
