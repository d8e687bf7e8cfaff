#include "report/run_report.hpp"

#include "report/core_use.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace metro {

namespace {

constexpr std::size_t max_ranks_listed = 16;

std::string replicas_of(const Placement& placement) {
  const auto filled = placement.num_layers == 0
                          ? 0
                          : std::count_if(placement.slot_to_expert.begin(), placement.slot_to_expert.end(),
                                          [](std::int32_t expert) { return expert != Placement::empty_slot; }) /
                                placement.num_layers;
  return fmt::format("{} per rank, {} slots for {} experts ({:.2f}x)", counted(placement.slots_per_rank, "slot"),
                     filled, placement.num_experts,
                     static_cast<double>(filled) / static_cast<double>(placement.num_experts));
}

// A column behind the memory of a rank, which is there if any rank has something in it.
struct BindingColumn {
  const char* heading;
  int width;
  std::string RankBinding::*field;
};
constexpr std::array<BindingColumn, 3> binding_columns{{{"CPUs", 12, &RankBinding::cpus},
                                                        {"CUDA_VISIBLE_DEVICES", 20, &RankBinding::gpus},
                                                        {"device", 0, &RankBinding::device}}};

// The last columns of a line: how a rank is bound, or with `rank` beyond the last one the headings.
std::string binding_text(const StartTable& table, std::size_t rank) {
  const std::vector<RankBinding>& bindings = table.identity->rank_to_binding;
  std::string text;
  for (const BindingColumn& column : binding_columns) {
    const auto has_it = [&](const RankBinding& binding) { return !(binding.*column.field).empty(); };
    if (std::any_of(bindings.begin(), bindings.end(), has_it)) {
      const std::string own = rank < bindings.size() ? bindings[rank].*column.field : column.heading;
      text += fmt::format("  {:<{}}", own.empty() ? "-" : own, column.width);
    }
  }
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

void print_rank(const StartTable& table, std::size_t rank, std::FILE* out) {
  const MemoryPlan& plan = table.memory_of_rank[rank];
  fmt::print(out, "    {:>4}  {:<20} {:>4}  {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}{}\n", rank,
             table.identity->rank_to_host[rank], table.identity->rank_to_node[rank], human_bytes(plan.dense),
             human_bytes(plan.experts), human_bytes(plan.kv), human_bytes(plan.buffers), human_bytes(plan.total()),
             human_bytes(table.free_of_rank[rank]), binding_text(table, rank));
}

}  // namespace

std::string human_bytes(std::int64_t num_bytes) {
  constexpr std::array<const char*, 5> units{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (num_bytes < 1024) {
    return fmt::format("{} B", num_bytes);
  }
  double value = static_cast<double>(num_bytes) / 1024.0;
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < units.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string counted(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

void print_identity(const RunIdentity& identity, std::FILE* out) {
  const ModelSpec& spec = identity.spec;
  const auto& nodes = identity.rank_to_node;
  fmt::print(out, "{}\n", identity.build);
  fmt::print(out, "  software    {}\n", identity.software);
  fmt::print(out, "  checkpoint  {} (digest {})\n", identity.checkpoint, identity.checkpoint_digest);
  fmt::print(
      out,
      "  model       {}: {} ({} MoE), hidden {}, heads {}:{} of {}, {} experts of width {}, top-{}, vocabulary {}\n",
      spec.family, counted(spec.num_layers, "layer"), spec.num_moe_layers(), spec.hidden_size, spec.attention.num_heads,
      spec.attention.num_kv_heads, spec.attention.head_dim, spec.moe.num_experts, spec.moe.intermediate_size,
      spec.moe.top_k, spec.vocab_size);
  fmt::print(out, "  job         {} on {}, transport {}\n", counted(std::ssize(nodes), "rank"),
             counted(nodes.empty() ? 0 : 1 + *std::max_element(nodes.begin(), nodes.end()), "node"),
             identity.transport);
  const std::optional<CoreUse> cores = core_use(identity);
  if (cores && cores->is_crowded()) {
    fmt::print(out, "  cores       {} on {} of {}: more than cores, so times mean nothing\n",
               counted(cores->num_threads, "thread"), counted(cores->num_cores, "core"), cores->host);
  }
  fmt::print(out, "  placement   {}: {}\n", identity.placement_name, replicas_of(identity.placement));
  fmt::print(out, "  routing     decode {}, prefill {}\n", identity.decode_policy, identity.prefill_policy);
  fmt::print(out, "  exchange    decode {}\n", identity.decode_exchange);
}

void print_start_table(const StartTable& table, std::FILE* out) {
  print_identity(*table.identity, out);
  fmt::print(out, "  sharing     {}\n", table.sharing);
  if (!table.decode.empty()) {
    fmt::print(out, "  decode      {}\n", table.decode);
  }
  if (!table.prefill.empty()) {
    fmt::print(out, "  prefill     {}\n", table.prefill);
  }
  fmt::print(out, "  context     {} positions per sequence, {} in the KV cache of a rank\n", table.max_context,
             table.kv_tokens_per_rank);
  if (!table.prefixes.empty()) {
    fmt::print(out, "  prefixes    {}\n", table.prefixes);
  }
  fmt::print(out, "    {:>4}  {:<20} {:>4}  {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}{}\n", "rank", "host", "node",
             "dense", "experts", "KV cache", "buffers", "total", "may take",
             binding_text(table, table.identity->rank_to_binding.size()));
  const std::size_t num_listed = std::min(table.memory_of_rank.size(), max_ranks_listed);
  for (std::size_t rank = 0; rank < num_listed; ++rank) {
    print_rank(table, rank, out);
  }
  if (num_listed < table.memory_of_rank.size()) {
    const auto largest = std::max_element(table.memory_of_rank.begin(), table.memory_of_rank.end(),
                                          [](const auto& a, const auto& b) { return a.total() < b.total(); });
    fmt::print(out, "    ... {} more; the largest:\n", table.memory_of_rank.size() - num_listed);
    print_rank(table, static_cast<std::size_t>(largest - table.memory_of_rank.begin()), out);
  }
  std::fflush(out);
}

}  // namespace metro
