#include "bench/scaling_model.hpp"

#include "base/error.hpp"
#include "decoder/ids_exchange.hpp"
#include "decoder/message_header.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace metro {

namespace {

constexpr double float_bytes = 4.0;
constexpr auto header_bytes = static_cast<double>(sizeof(MessageHeader));
constexpr double record_bytes = 58.0;  // of a sequence, in what ranks tell each other after a step

double real(std::int64_t number) {
  return static_cast<double>(number);
}

// Weights are read once, and every row takes two operations for each: whichever takes longer.
double matrix_seconds(double weights, double num_rows, const Machine& machine, const CostFigures& figures) {
  return std::max(weights * figures.weight_bytes / machine.memory_bytes_per_s,
                  2.0 * weights * num_rows / machine.flops);
}

std::int64_t ranks_on_node(std::int64_t num_ranks, const Machine& machine) {
  return std::min(num_ranks, machine.ranks_per_node);
}

// Bytes of a rank, spread evenly over the other ranks. Both links work at the same time.
double link_seconds(double bytes, std::int64_t num_ranks, const Machine& machine) {
  if (num_ranks == 1) {
    return 0.0;
  }
  const double inside = real(ranks_on_node(num_ranks, machine) - 1) / real(num_ranks - 1);
  return std::max(bytes * inside / machine.inside_bytes_per_s, bytes * (1.0 - inside) / machine.network_bytes_per_s);
}

double allgather_seconds_of(double bytes, std::int64_t num_ranks, const Machine& machine, const CostFigures& figures) {
  const std::int64_t num_nodes = (num_ranks + machine.ranks_per_node - 1) / machine.ranks_per_node;
  const auto doublings = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(num_nodes - 1)));
  return figures.latency_s + figures.hop_s * doublings + link_seconds(bytes, num_ranks, machine);
}

double alltoall_seconds(double bytes, std::int64_t num_ranks, const Machine& machine, const CostFigures& figures) {
  return figures.latency_s + figures.message_s * real(num_ranks - ranks_on_node(num_ranks, machine)) +
         link_seconds(bytes + header_bytes * real(num_ranks - 1), num_ranks, machine);
}

}  // namespace

WeightCounts weight_counts(const ModelShape& shape) {
  METRO_REQUIRE(shape.num_layers > shape.num_dense_layers, shape.name);
  WeightCounts counts;
  for (const LinearShape& linear : shape.linears) {
    const double size = real(linear.out) * real(linear.in);
    if (linear.name == "lm_head") {
      counts.head = size;
    } else if (linear.name == "router") {
      counts.beside_experts += size;
    } else {
      counts.attention += linear.name == "k, v" ? 2.0 * size : size;
    }
  }
  const double width = 3.0 * real(shape.hidden);
  counts.expert = width * real(shape.expert_width);
  counts.beside_experts += width * real(shape.shared_width);
  counts.dense_mlp = width * real(shape.dense_width);
  const double moe_layers = real(shape.num_layers - shape.num_dense_layers);
  counts.replicated = real(shape.num_layers) * counts.attention + moe_layers * counts.beside_experts +
                      real(shape.num_dense_layers) * counts.dense_mlp + 2.0 * counts.head;
  counts.total = counts.replicated + moe_layers * real(shape.num_experts) * counts.expert;
  return counts;
}

double ExchangeSeconds::least() const {
  return std::min(gathered, by_ids);
}

double gathered_bytes(const ModelShape& shape, std::int64_t num_ranks, double batch) {
  return real(num_ranks - 1) * batch * float_bytes * real(shape.hidden + shape.top_k);
}

double gathered_seconds(const ModelShape& shape, std::int64_t num_ranks, double batch, const Machine& machine) {
  return link_seconds(gathered_bytes(shape, num_ranks, batch), num_ranks, machine);
}

ExchangeSeconds exchange_seconds(const ModelShape& shape, std::int64_t num_ranks, double batch, const RoutedRows& rows,
                                 const Machine& machine, const CostFigures& figures) {
  if (num_ranks == 1) {
    return {};
  }
  const double row_bytes = float_bytes * real(shape.hidden);
  // A rank's own rows do not travel; of the assignments it serves, and of its own, that is one in `num_ranks`.
  const double from_others = real(num_ranks - 1) / real(num_ranks);
  const double id_bytes = real(IdsExchange::id_bytes(shape.num_experts));
  const double ids = real(num_ranks - 1) * batch * real(shape.top_k) * id_bytes;
  const double rows_moved = std::max(rows.received, rows.sent);
  const double results = from_others * std::max(rows.assignments, batch * real(shape.top_k));
  const double back = alltoall_seconds(results * row_bytes, num_ranks, machine, figures);
  return {allgather_seconds_of(gathered_bytes(shape, num_ranks, batch), num_ranks, machine, figures) + back,
          allgather_seconds_of(ids, num_ranks, machine, figures) +
              alltoall_seconds(rows_moved * row_bytes, num_ranks, machine, figures) + back};
}

StepCost step_cost(const ModelShape& shape, std::int64_t num_ranks, double batch, const RoutedRows& rows,
                   const Machine& machine, const CostFigures& figures) {
  METRO_REQUIRE(num_ranks >= 1 && batch >= 1.0, "no such step");
  const WeightCounts weights = weight_counts(shape);
  const double layers = real(shape.num_layers);
  const double dense_layers = real(shape.num_dense_layers);
  const double moe_layers = layers - dense_layers;
  const double all_rows = real(num_ranks) * batch;
  const double kv_bytes = batch * figures.context * real(shape.kv_values) * float_bytes;
  StepCost cost;
  cost.attention =
      layers * (matrix_seconds(weights.attention, batch, machine, figures) + kv_bytes / machine.memory_bytes_per_s) +
      moe_layers * matrix_seconds(weights.beside_experts, batch, machine, figures) +
      dense_layers * matrix_seconds(weights.dense_mlp, batch, machine, figures) +
      matrix_seconds(weights.head, batch, machine, figures);
  cost.experts = moe_layers * std::max(rows.lambda * weights.expert * figures.weight_bytes / machine.memory_bytes_per_s,
                                       2.0 * weights.expert * rows.assignments / machine.flops);
  cost.exchange = moe_layers * exchange_seconds(shape, num_ranks, batch, rows, machine, figures).least();
  cost.routing = moe_layers * (figures.routing_s + figures.routing_rank_s * real(num_ranks) +
                               figures.routing_assignment_s * all_rows * real(shape.top_k));
  cost.schedule = figures.sequence_s * all_rows;
  if (num_ranks > 1) {
    cost.exchange += allgather_seconds_of(record_bytes * (all_rows - batch), num_ranks, machine, figures);
  }
  return cost;
}

std::int64_t request_window(std::int64_t num_ranks, std::int64_t batch) {
  return std::max<std::int64_t>(64, num_ranks * batch);
}

RankMemory rank_memory(const ModelShape& shape, std::int64_t num_ranks, double batch, std::int64_t slots_per_rank,
                       const CostFigures& figures) {
  const WeightCounts weights = weight_counts(shape);
  const double sequences = real(num_ranks) * batch;
  RankMemory memory;
  memory.replicated = figures.weight_bytes * weights.replicated;
  memory.experts =
      figures.weight_bytes * weights.expert * real(slots_per_rank) * real(shape.num_layers - shape.num_dense_layers);
  memory.kv = batch * figures.context * real(shape.kv_values) * float_bytes * real(shape.num_layers);
  memory.buffers = figures.buffer_bytes;
  memory.host = sequences * (figures.sequence_bytes + float_bytes * figures.context);
  return memory;
}

}  // namespace metro
