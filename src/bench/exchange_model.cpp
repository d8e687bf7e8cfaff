#include "bench/exchange_model.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cmath>

namespace metro {

namespace {

constexpr std::int64_t most_rows = std::int64_t{1} << 40;
constexpr double float_bytes = 4.0;
constexpr double header_bytes = 16.0;
constexpr double bf16_bytes = 2.0;

double id_bytes(const ExchangeShape& shape) {
  return shape.num_experts <= 65536 ? 2.0 : 4.0;
}

// Share of the rows of all ranks that comes from others.
double share_of_others(std::int64_t num_ranks) {
  return static_cast<double>(num_ranks - 1) / static_cast<double>(num_ranks);
}

double row_bytes(const ExchangeShape& shape) {
  return static_cast<double>(shape.hidden) * float_bytes;
}

// Per row of all ranks, in either mode.
double allgather_bytes_per_row(const ExchangeShape& shape, std::int64_t num_ranks) {
  return (row_bytes(shape) + static_cast<double>(shape.top_k) * float_bytes) * share_of_others(num_ranks);
}
double ids_bytes_per_row(const ExchangeShape& shape, std::int64_t num_ranks) {
  return static_cast<double>(shape.top_k) * id_bytes(shape) * share_of_others(num_ranks) +
         row_bytes(shape) * expected_other_ranks(shape, num_ranks) / static_cast<double>(num_ranks);
}

double header_bytes_of(std::int64_t num_ranks) {
  return header_bytes * static_cast<double>(num_ranks - 1);
}

}  // namespace

ExchangeShape exchange_shape_of(const ModelShape& model) {
  return {model.hidden, model.top_k, model.num_experts, model.expert_width};
}

double expected_other_ranks(const ExchangeShape& shape, std::int64_t num_ranks) {
  METRO_REQUIRE(num_ranks >= 1 && shape.top_k >= 1 && shape.top_k <= shape.num_experts, "no such exchange");
  const auto num_experts = static_cast<double>(shape.num_experts);
  const double elsewhere = num_experts - num_experts / static_cast<double>(num_ranks);
  double none = 1.0;
  for (std::int64_t i = 0; i < shape.top_k; ++i) {
    const auto taken = static_cast<double>(i);
    none *= std::max(0.0, elsewhere - taken) / (num_experts - taken);
  }
  return static_cast<double>(num_ranks - 1) * (1.0 - none);
}

double allgather_bytes(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows) {
  return num_rows * allgather_bytes_per_row(shape, num_ranks);
}

double ids_bytes(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows) {
  return num_rows * ids_bytes_per_row(shape, num_ranks) + header_bytes_of(num_ranks);
}

double allgather_seconds(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows, const Link& link) {
  return num_ranks == 1 ? 0.0 : link.latency_s + allgather_bytes(shape, num_ranks, num_rows) / link.bytes_per_s;
}

double ids_seconds(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows, const Link& link) {
  return num_ranks == 1 ? 0.0 : 2.0 * link.latency_s + ids_bytes(shape, num_ranks, num_rows) / link.bytes_per_s;
}

double crossover_rows(const ExchangeShape& shape, std::int64_t num_ranks, const Link& link) {
  // Both times are linear in the rows: the latency and headers that ids cost more, over the bytes a row costs less.
  const double saved = allgather_bytes_per_row(shape, num_ranks) - ids_bytes_per_row(shape, num_ranks);
  if (num_ranks == 1 || saved <= 0.0) {
    return std::numeric_limits<double>::infinity();
  }
  return (link.latency_s * link.bytes_per_s + header_bytes_of(num_ranks)) / saved;
}

double expected_active(const ExchangeShape& shape, double num_rows) {
  const auto num_experts = static_cast<double>(shape.num_experts);
  return num_experts * (1.0 - std::pow(1.0 - static_cast<double>(shape.top_k) / num_experts, num_rows));
}

double weight_seconds(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows, const Link& link) {
  const double expert_bytes =
      3.0 * static_cast<double>(shape.hidden) * static_cast<double>(shape.expert_width) * bf16_bytes;
  return expected_active(shape, num_rows) / static_cast<double>(num_ranks) * expert_bytes / link.memory_bytes_per_s;
}

RowRange rows_of_cheap_allgather(const ExchangeShape& shape, std::int64_t num_ranks, const Link& link, double share) {
  const auto margin = [&](std::int64_t num_rows) {
    const auto rows = static_cast<double>(num_rows);
    return share * weight_seconds(shape, num_ranks, rows, link) - allgather_seconds(shape, num_ranks, rows, link);
  };
  // The weights' time is concave in the rows and the allgather's is linear: the margin rises to a peak and then falls.
  std::int64_t low = 1;
  std::int64_t high = most_rows;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (margin(middle + 1) > margin(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const std::int64_t peak = low;
  if (margin(peak) < 0.0) {
    return {0, 0};
  }
  // First row with a margin, and last.
  const auto boundary = [&](std::int64_t inside, std::int64_t outside) {
    while (std::abs(inside - outside) > 1) {
      const std::int64_t middle = inside + (outside - inside) / 2;
      (margin(middle) >= 0.0 ? inside : outside) = middle;
    }
    return inside;
  };
  return {boundary(peak, 0), boundary(peak, most_rows + 1)};
}

}  // namespace metro
