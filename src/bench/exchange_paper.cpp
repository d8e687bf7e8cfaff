#include "bench/exchange_paper.hpp"

#include <cmath>

namespace metro {

namespace {

PaperRow paper_row(const Link& link, const std::string& model, const ExchangeShape& shape, std::int64_t num_ranks) {
  constexpr double rows_without_crossover = 256.0;
  PaperRow row{link, model, shape, num_ranks, crossover_rows(shape, num_ranks, link), {}, 0.0, 0.0, 0.0, 0.0};
  row.free_rows = rows_of_cheap_allgather(shape, num_ranks, link, free_share);
  row.num_rows =
      std::isfinite(row.crossover) ? std::ceil(row.crossover) : rows_without_crossover * static_cast<double>(num_ranks);
  row.allgather_us = 1e6 * allgather_seconds(shape, num_ranks, row.num_rows, link);
  row.ids_us = 1e6 * ids_seconds(shape, num_ranks, row.num_rows, link);
  row.weights_us = 1e6 * weight_seconds(shape, num_ranks, row.num_rows, link);
  return row;
}

}  // namespace

std::vector<Link> paper_links(const ExchangeBenchOptions& options) {
  const double latency_s = 1e-6 * options.latency_us;
  if (options.bandwidth_gb > 0.0) {
    return {{"given", latency_s, 1e9 * options.bandwidth_gb, 1e9 * options.memory_gb, {2, 4, 8, 16, 32, 64}}};
  }
  // NVIDIA's data sheets: H100 SXM (NVLink 900 GB/s, HBM3 3.35 TB/s), DGX B200 (NVLink 14.4 TB/s and HBM3e 64 TB/s of
  // 8 GPUs), GB200 NVL72 (72 GPUs on one NVLink), ConnectX-7 (NDR 400 Gb/s). NVLink counts both directions: half of it
  // is taken. One port of InfiniBand for each GPU, an H100.
  return {{"NVLink 4", latency_s, 450e9, 3.35e12, {2, 4, 8}},
          {"NVLink 5", latency_s, 900e9, 8e12, {8, 36, 72}},
          {"InfiniBand NDR", latency_s, 50e9, 3.35e12, {16, 32, 64}}};
}

std::vector<PaperRow> paper_table(const ExchangeBenchOptions& options) {
  std::vector<std::pair<std::string, ExchangeShape>> shapes;
  for (const std::string& name : model_shape_names()) {
    const ModelShape& shape = model_shape(name, "bench exchange: --model");
    if (shape.is_published) {
      shapes.emplace_back(name, exchange_shape_of(shape));
    }
  }
  if (options.hidden > 0 || options.top_k > 0 || options.num_experts > 0) {
    shapes.emplace_back("custom", exchange_shape_of(options));
  }
  std::vector<PaperRow> rows;
  for (const Link& link : paper_links(options)) {
    for (const auto& [model, shape] : shapes) {
      for (const std::int64_t num_ranks : link.ranks) {
        rows.push_back(paper_row(link, model, shape, num_ranks));
      }
    }
  }
  return rows;
}

}  // namespace metro
