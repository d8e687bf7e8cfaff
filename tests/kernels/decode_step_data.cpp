#include "decode_step_data.hpp"

#include "base/integers.hpp"
#include "kernels/experts.hpp"
#include "mirror_data.hpp"
#include "support/kernel_memory.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace metro::test {

namespace {

// Part `rank` of what is [num_ranks, ...].
template <class T>
Mirror<T> own_part(const std::vector<T>& of_all, std::int64_t rank, std::int64_t num_ranks) {
  const std::int64_t size = std::ssize(of_all) / num_ranks;
  return mirror_of(std::vector<T>(of_all.begin() + rank * size, of_all.begin() + (rank + 1) * size));
}

std::vector<std::int32_t> row_begin_of(const DecodeShape& shape) {
  std::vector<std::int32_t> begin;
  for (std::int64_t rank = 0; rank <= shape.num_ranks; ++rank) {
    begin.push_back(static_cast<std::int32_t>(rank * shape.padded_rows));
  }
  return begin;
}

std::vector<float> random_floats(std::int64_t size, Numbers& numbers) {
  std::vector<float> values(at(size));
  std::generate(values.begin(), values.end(), [&] { return numbers.next(); });
  return values;
}

}  // namespace

DecodeProblem::DecodeProblem(const DecodeShape& shape_of, const std::vector<std::int64_t>& rows_of, std::uint32_t seed)
    : shape(shape_of), rows_of_rank(rows_of) {
  Numbers numbers(seed);
  std::mt19937 random(seed);
  const std::int64_t width = shape.hidden_size;
  for (std::int64_t e = 0; e < shape.num_experts; ++e) {
    experts.push_back({random_weights(shape.gate_up, shape.expert_width, width, numbers),
                       random_weights(shape.gate_up, shape.expert_width, width, numbers),
                       random_weights(shape.down, width, shape.expert_width, numbers)});
  }
  for (std::int64_t slot = 0; slot < shape.num_ranks * shape.slots_per_rank; ++slot) {
    const auto any = static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(shape.num_experts + 1)) - 1;
    slot_to_expert.push_back(static_cast<std::int32_t>(slot < shape.num_experts ? slot : any));
  }
  std::shuffle(slot_to_expert.begin(), slot_to_expert.end(), random);
  rows = random_floats(num_rows() * width, numbers);
  weights = random_floats(num_rows() * shape.top_k, numbers);
  residual = random_floats(num_rows() * width, numbers);
  std::vector<std::int32_t> all(at(shape.num_experts));
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t row = 0; row < num_rows(); ++row) {
    std::shuffle(all.begin(), all.end(), random);
    expert_ids.insert(expert_ids.end(), all.begin(), all.begin() + shape.top_k);
    const bool is_padding = row % shape.padded_rows >= rows_of_rank[at(row / shape.padded_rows)];
    positions.push_back(is_padding ? -1 : static_cast<std::int32_t>(row));
  }
}

ExpertWeightTable DecodeProblem::table(std::int64_t rank) const {
  std::vector<ExpertWeights> of_slots;
  for (std::int64_t slot = rank * shape.slots_per_rank; slot < (rank + 1) * shape.slots_per_rank; ++slot) {
    const std::int32_t expert = slot_to_expert[at(slot)];
    of_slots.push_back(expert < 0 ? ExpertWeights{} : experts[at(expert)].packed());
  }
  return ExpertWeightTable(of_slots);
}

std::vector<float> expected_residual(const DecodeProblem& problem) {
  const DecodeShape& shape = problem.shape;
  const std::int64_t width = shape.hidden_size;
  const Mirror<float> rows = mirror_of(problem.rows);
  const Mirror<float> hidden("hidden", shape.expert_width);
  const Mirror<float> result("result", width);
  std::vector<float> expected = problem.residual;
  for (std::int64_t row = 0; row < problem.num_rows(); ++row) {
    if (problem.positions[at(row)] < 0) {
      continue;
    }
    std::vector<float> sums(at(width), 0.0F);
    for (std::int64_t k = 0; k < shape.top_k; ++k) {
      const std::int32_t expert = problem.expert_ids[at(row * shape.top_k + k)];
      const ExpertWork work{problem.experts[at(expert)].packed(), 0, 1};
      expert_ffn({&work, 1}, rows.kernels() + row * width, hidden.kernels(), result.kernels());
      const std::vector<float> y = values_of(result);
      for (std::int64_t i = 0; i < width; ++i) {
        sums[at(i)] = std::fma(problem.weights[at(row * shape.top_k + k)], y[at(i)], sums[at(i)]);
      }
    }
    for (std::int64_t i = 0; i < width; ++i) {
      expected[at(row * width + i)] = expected[at(row * width + i)] + sums[at(i)];
    }
  }
  return expected;
}

DecodeRank::DecodeRank(const DecodeProblem& problem, const ResultMessages& messages, StepPolicy policy,
                       std::int64_t rank)
    : problem_(&problem),
      messages_(messages),
      rank_(rank),
      max_work_(problem.num_rows() * problem.shape.top_k),
      record_{problem.shape.hidden_size, problem.shape.top_k},
      tables_(problem.slot_to_expert, problem.shape.num_experts, problem.shape.num_ranks, rank),
      step_(policy, {problem.shape.num_experts, problem.shape.num_ranks, problem.shape.slots_per_rank, max_work_}),
      table_(problem.table(rank)),
      ids_(own_part(problem.expert_ids, rank, problem.shape.num_ranks)),
      positions_(own_part(problem.positions, rank, problem.shape.num_ranks)),
      ids_of_all_("ids of all", max_work_),
      row_begin_(mirror_of(row_begin_of(problem.shape))),
      rows_(own_part(problem.rows, rank, problem.shape.num_ranks)),
      weights_(own_part(problem.weights, rank, problem.shape.num_ranks)),
      residual_(own_part(problem.residual, rank, problem.shape.num_ranks)),
      records_("records", problem.shape.padded_rows * record_.num_floats()),
      hidden_("hidden", max_work_ * problem.shape.expert_width),
      results_("results", max_work_ * problem.shape.hidden_size),
      send_("send", messages.num_floats(max_work_)),
      received_("received", messages.num_floats(ids_.size())),
      mismatch_("mismatch", 1) {}

const float* DecodeRank::pack() {
  pack_records(rows_.kernels(), ids_.kernels(), positions_.kernels(), problem_->shape.padded_rows, record_,
               records_.kernels());
  return records_.kernels();
}

void DecodeRank::serve(const Mirror<float>& all_records) {
  unpack_ids(all_records.kernels(), problem_->num_rows(), record_, ids_of_all_.kernels());
  step_.route(tables_, {ids_of_all_.kernels(), problem_->num_rows(), problem_->shape.top_k, row_begin_.kernels()});
  const RoutingResult& lists = step_.result();
  listed_expert_ffn(
      table_,
      {lists.work_begin, lists.work, max_work_, all_records.kernels(), record_.num_floats(), problem_->shape.top_k},
      hidden_.kernels(), results_.kernels());
  pack_results(lists, messages_, max_work_, results_.kernels(), send_.kernels());
}

std::int64_t DecodeRank::message_begin(std::int64_t rank, const std::vector<std::int32_t>& before) const {
  const std::int64_t rows = messages_.capacity > 0 ? rank * messages_.capacity : before[at(rank)];
  return rank * ResultMessages::header_floats + rows * messages_.width;
}

void DecodeRank::receive(const std::vector<DecodeRank>& ranks) {
  const std::int64_t num_ranks = messages_.num_ranks;
  const std::vector<std::int32_t> returned = host_copy(routing().returned_begin, num_ranks + 1);
  for (std::int64_t server = 0; server < num_ranks; ++server) {
    const DecodeRank& from = ranks[at(server)];
    const std::vector<std::int32_t> sent = host_copy(from.routing().sent_begin, num_ranks + 1);
    const std::int64_t count =
        messages_.capacity > 0 ? messages_.capacity : returned[at(server + 1)] - returned[at(server)];
    const std::int64_t num_floats = ResultMessages::header_floats + count * messages_.width;
    queue_copy(received_.kernels() + message_begin(server, returned),
               from.send_.kernels() + from.message_begin(rank_, sent),
               num_floats * static_cast<std::int64_t>(sizeof(float)));
  }
}

void DecodeRank::finish(std::int64_t moe_layer) {
  check_headers(routing(), messages_, moe_layer, received_.kernels(), mismatch_.kernels());
  combine_results(routing(), messages_, received_.kernels(), weights_.kernels(), problem_->shape.padded_rows,
                  problem_->shape.top_k, residual_.kernels());
}

std::vector<float> DecodeRank::residual() const {
  return values_of(residual_);
}

HeaderMismatch DecodeRank::mismatch() const {
  return values_of(mismatch_).front();
}

std::vector<DecodeRank> decode_on_ranks(const DecodeProblem& problem, StepPolicy policy, std::int64_t capacity) {
  const DecodeShape& shape = problem.shape;
  const ResultMessages messages{shape.num_ranks, shape.hidden_size, capacity};
  const std::int64_t floats_of_rank = shape.padded_rows * RecordShape{shape.hidden_size, shape.top_k}.num_floats();
  const Mirror<float> all_records("records of all", shape.num_ranks * floats_of_rank);
  std::vector<DecodeRank> ranks;
  for (std::int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    ranks.emplace_back(problem, messages, policy, rank);
    queue_copy(all_records.kernels() + rank * floats_of_rank, ranks.back().pack(),
               floats_of_rank * static_cast<std::int64_t>(sizeof(float)));
  }
  for (DecodeRank& rank : ranks) {
    rank.serve(all_records);
  }
  for (DecodeRank& rank : ranks) {
    rank.receive(ranks);
    rank.finish(3);
  }
  wait_for_kernels();
  return ranks;
}

}  // namespace metro::test
