#include "plan/placement_report.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace metro {

namespace {

constexpr std::size_t most_experts_shown = 8;

std::int64_t filled_slots(std::span<const std::int32_t> slots) {
  return std::count_if(slots.begin(), slots.end(), [](std::int32_t expert) { return expert >= 0; });
}

std::string counted(std::int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

double mean_of(const std::vector<LayerLambda>& layers, double LayerLambda::*member) {
  double sum = 0.0;
  for (const LayerLambda& layer : layers) {
    sum += layer.*member;
  }
  return sum / static_cast<double>(layers.size());
}

// The load of the busiest rank, as a mean over layers.
double mean_imbalance(const Placement& placement, std::span<const std::int64_t> loads) {
  const std::vector<double> relative = relative_rank_loads(placement, loads);
  double sum = 0.0;
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    const auto begin = relative.begin() + layer * placement.num_ranks;
    sum += *std::max_element(begin, begin + placement.num_ranks);
  }
  return sum / static_cast<double>(placement.num_layers);
}

std::string headline(const ReportedPlacement& reported) {
  const Placement& placement = *reported.placement;
  const auto filled = static_cast<double>(filled_slots(placement.slot_to_expert));
  return fmt::format("{}: {} with {}, {} on {}, {} per rank, {:.3f} replicas per expert\n", reported.name,
                     counted(placement.num_layers, "MoE layer"), counted(placement.num_experts, "expert"),
                     counted(placement.num_ranks, "rank"), counted(reported.num_nodes, "node"),
                     counted(placement.slots_per_rank, "slot"),
                     filled / static_cast<double>(placement.num_layers * placement.num_experts));
}

std::string lambda_part(const ReportedPlacement& reported) {
  const ActivationSample& sample = *reported.sample;
  const auto own = expected_lambda(sample, *reported.placement);
  const auto eplb = expected_lambda(sample, *reported.eplb);
  const double own_mean = mean_of(own, &LayerLambda::expected);
  const double eplb_mean = mean_of(eplb, &LayerLambda::expected);
  const double bound = mean_of(own, &LayerLambda::bound);
  std::string text = fmt::format("\nexperts read on the busiest rank (lambda), mean over {} and layers\n",
                                 counted(sample.num_steps(), "sampled step"));
  text += fmt::format("  {:<28} {:8.4f}\n", "this placement", own_mean);
  text += fmt::format("  {:<28} {:8.4f}\n", "EPLB with as many slots", eplb_mean);
  text += fmt::format("  {:<28} {:8.4f}\n", "bound: active / ranks", bound);
  if (eplb_mean > bound) {
    text += fmt::format("  {:<28} {:7.1f}%\n", "of the way from EPLB there",
                        100.0 * (eplb_mean - own_mean) / (eplb_mean - bound));
  }
  if (reported.with_one_more != nullptr) {
    const double more = mean_of(expected_lambda(sample, *reported.with_one_more), &LayerLambda::expected);
    text += fmt::format("  {:<28} {:8.4f}\n", "one slot per rank more", more);
  }
  text += "\nlayer  slots per rank   lambda     EPLB    bound\n";
  for (std::int64_t layer = 0; layer < reported.placement->num_layers; ++layer) {
    const std::int64_t slots = filled_slots(reported.placement->layer(layer));
    text += fmt::format("{:>5}  {:>14.4g} {:>8.4f} {:>8.4f} {:>8.4f}\n", layer,
                        static_cast<double>(slots) / static_cast<double>(reported.placement->num_ranks),
                        own[at(layer)].expected, eplb[at(layer)].expected, own[at(layer)].bound);
  }
  return text;
}

std::string balance_part(const ReportedPlacement& reported) {
  std::string text = "\ntokens of the busiest rank / mean over ranks, replicas serving alike, mean over layers\n";
  text += fmt::format("  {:<28} {:8.4f}\n", "this placement", mean_imbalance(*reported.placement, reported.loads));
  text += fmt::format("  {:<28} {:8.4f}\n", "EPLB with as many slots", mean_imbalance(*reported.eplb, reported.loads));
  if (reported.with_one_more != nullptr) {
    text += fmt::format("  {:<28} {:8.4f}\n", "one slot per rank more",
                        mean_imbalance(*reported.with_one_more, reported.loads));
  }
  return text;
}

struct RankLine {
  std::int64_t num_ranks = 0, experts = 0, bytes = 0;
  double mean_load = 0.0, largest_load = 0.0;
};

std::string line_of(const std::string& who, const RankLine& line, bool with_bytes) {
  return fmt::format("{:<12} {:>8} {:>9.3f} {:>9.3f}{}\n", who, line.experts, line.mean_load, line.largest_load,
                     with_bytes ? fmt::format(" {:>15}", line.bytes) : std::string());
}

std::string rank_part(const ReportedPlacement& reported) {
  const Placement& placement = *reported.placement;
  const std::vector<double> loads = relative_rank_loads(placement, reported.loads);
  const bool with_bytes = !reported.bytes_of_rank.empty();
  std::vector<RankLine> nodes(at(reported.num_nodes));
  std::string text =
      fmt::format("\n             replicas  load: mean  largest{}\n", with_bytes ? "    expert bytes" : "");
  for (std::int64_t rank = 0; rank < placement.num_ranks; ++rank) {
    RankLine line;
    for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
      line.experts += filled_slots(
          placement.layer(layer).subspan(at(rank * placement.slots_per_rank), at(placement.slots_per_rank)));
      const double load = loads[at(layer * placement.num_ranks + rank)];
      line.mean_load += load / static_cast<double>(placement.num_layers);
      line.largest_load = std::max(line.largest_load, load);
    }
    line.bytes = with_bytes ? reported.bytes_of_rank[at(rank)] : 0;
    text += line_of(fmt::format("rank {}", rank), line, with_bytes);
    RankLine& node = nodes[at(rank * reported.num_nodes / placement.num_ranks)];
    ++node.num_ranks;
    node.experts += line.experts;
    node.bytes += line.bytes;
    node.mean_load += line.mean_load;
    node.largest_load = std::max(node.largest_load, line.largest_load);
  }
  for (std::int64_t node = 0; node < reported.num_nodes && reported.num_nodes > 1; ++node) {
    RankLine& line = nodes[at(node)];
    line.mean_load /= static_cast<double>(std::max<std::int64_t>(line.num_ranks, 1));
    text += line_of(fmt::format("node {}", node), line, with_bytes);
  }
  return text;
}

std::string replica_part(const Placement& placement) {
  std::map<std::int64_t, std::int64_t> experts_with;                       // replicas -> experts of all layers
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> most;  // (-replicas, layer, expert)
  std::int64_t num_doubles = 0;
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    std::vector<std::int64_t> replicas(at(placement.num_experts), 0);
    std::set<std::pair<std::int64_t, std::int32_t>> seen;
    for (std::int64_t slot = 0; slot < placement.num_slots(); ++slot) {
      const std::int32_t expert = placement.layer(layer)[at(slot)];
      if (expert >= 0) {
        ++replicas[at(expert)];
        num_doubles += seen.insert({slot / placement.slots_per_rank, expert}).second ? 0 : 1;
      }
    }
    for (std::int64_t expert = 0; expert < placement.num_experts; ++expert) {
      ++experts_with[replicas[at(expert)]];
      most.emplace_back(-replicas[at(expert)], layer, expert);
    }
  }
  std::string text = "\nreplicas  experts of all layers\n";
  for (const auto& [replicas, experts] : experts_with) {
    text += fmt::format("{:>8}  {:>7}\n", replicas, experts);
  }
  std::sort(most.begin(), most.end());
  most.resize(std::min(most.size(), most_experts_shown));
  std::vector<std::string> shown;
  for (const auto& [minus_replicas, layer, expert] : most) {
    shown.push_back(fmt::format("{} of layer {} ({})", expert, layer, -minus_replicas));
  }
  text += fmt::format("most replicas: expert {}\n", fmt::join(shown, ", "));
  if (num_doubles > 0) {
    text += fmt::format("{} a second slot of an expert on the same rank, which serves nothing\n",
                        num_doubles == 1 ? "1 slot is" : fmt::format("{} slots are each", num_doubles));
  }
  return text;
}

}  // namespace

std::vector<double> relative_rank_loads(const Placement& placement, std::span<const std::int64_t> loads) {
  METRO_REQUIRE(std::ssize(loads) == placement.num_layers * placement.num_experts,
                fmt::format("{} loads", loads.size()));
  std::vector<double> relative(at(placement.num_layers * placement.num_ranks), 0.0);
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    std::vector<std::int64_t> replicas(at(placement.num_experts), 0);
    for (const std::int32_t expert : placement.layer(layer)) {
      replicas[at(std::max(expert, 0))] += expert >= 0 ? 1 : 0;
    }
    const auto begin = relative.begin() + layer * placement.num_ranks;
    double sum = 0.0;
    for (std::int64_t slot = 0; slot < placement.num_slots(); ++slot) {
      const std::int32_t expert = placement.layer(layer)[at(slot)];
      if (expert >= 0) {
        const double load = static_cast<double>(loads[at(layer * placement.num_experts + expert)]) /
                            static_cast<double>(replicas[at(expert)]);
        begin[slot / placement.slots_per_rank] += load;
        sum += load;
      }
    }
    std::transform(begin, begin + placement.num_ranks, begin, [&](double load) {
      return sum > 0.0 ? load * static_cast<double>(placement.num_ranks) / sum : 1.0;
    });
  }
  return relative;
}

std::string placement_report(const ReportedPlacement& reported) {
  std::string text = headline(reported);
  if (reported.sample != nullptr && reported.sample->num_steps() > 0) {
    text += lambda_part(reported);
  }
  return text + balance_part(reported) + rank_part(reported) + replica_part(*reported.placement);
}

}  // namespace metro
