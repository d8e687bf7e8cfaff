#include "engine/listed_setup.hpp"

#include "base/error.hpp"
#include "decoder/listed_decode.hpp"
#include "kernels/graph.hpp"
#include "kernels/queue.hpp"
#include "report/run_report.hpp"

#include <fmt/format.h>

namespace metro {

ListedChoice choose_listed(const Deck& deck, const ModelSpec& spec, const Placement& placement,
                           const RoutingSettings& routing, const DecoderLimits& limits) {
  const bool must = deck.device.decode == "device";
  if (kernels_use_host_memory()) {
    if (must) {
      throw Error(ExitCode::usage, "device.decode = \"device\": kernels of this metro run on the host");
    }
    return {};
  }
  if (deck.device.decode == "host") {
    return {{}, "routed by the host (device.decode)"};
  }
  const ListedDecode::Reach reach = ListedDecode::most_rows(spec, placement, routing, limits);
  if (reach.num_rows == 0) {
    if (must) {
      throw Error(ExitCode::usage, "device.decode = \"device\": " + reach.why_not);
    }
    return {{}, "routed by the host: " + reach.why_not};
  }
  ListedSettings settings;
  settings.most_rows = reach.num_rows;
  settings.fixed_messages = deck.device.messages == "fixed";
  settings.graphs = deck.device.graphs == "on" && KernelGraph::is_supported();
  const char* const beyond = reach.num_rows < limits.max_decode_rows ? ", by the host beyond" : "";
  return {settings, fmt::format("routed by the device up to {} a rank{}, {}{}", counted(reach.num_rows, "row"), beyond,
                                settings.graphs ? "kernels between exchanges as graphs" : "kernels one by one",
                                settings.fixed_messages ? ", results in messages of one length" : "")};
}

}  // namespace metro
