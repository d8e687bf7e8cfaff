// A decode step of one MoE layer on simulated ranks in one process: what each of them holds, the kernels in their
// order, exchanges by copying, and what must come out.
#pragma once

#include "kernel_data.hpp"
#include "kernels/decode_lists.hpp"
#include "kernels/listed_experts.hpp"
#include "kernels/mirror.hpp"
#include "kernels/routing.hpp"

#include <cstdint>
#include <vector>

namespace metro::test {

struct DecodeShape {
  std::int64_t num_experts, num_ranks, slots_per_rank, top_k;
  std::int64_t hidden_size, expert_width;
  std::int64_t padded_rows;  // P, of each rank
  StoredType gate_up = StoredType::bf16;
  StoredType down = StoredType::bf16;
};

struct TestExpert {
  Weights gate, up, down;

  ExpertWeights packed() const { return {gate.packed, up.packed, down.packed}; }
};

// Rows and placement of all ranks.
struct DecodeProblem {
  DecodeShape shape;
  std::vector<TestExpert> experts;
  std::vector<std::int32_t> slot_to_expert;  // [num_ranks * slots_per_rank], -1 = empty
  std::vector<std::int64_t> rows_of_rank;    // [num_ranks] that are not padding
  // [num_ranks * padded_rows, ...]
  std::vector<float> rows, weights, residual;
  std::vector<std::int32_t> expert_ids, positions;

  // Every expert has a slot, the other slots have any expert or none. rows_of_rank: at most padded_rows each. Rows that
  // are padding have numbers and ids too, which nobody must use.
  DecodeProblem(const DecodeShape& shape, const std::vector<std::int64_t>& rows_of_rank, std::uint32_t seed);

  std::int64_t num_rows() const { return shape.num_ranks * shape.padded_rows; }
  ExpertWeightTable table(std::int64_t rank) const;
};

// residual + experts of all rows, by the kernels for lists of the host, one expert and row at a time.
std::vector<float> expected_residual(const DecodeProblem& problem);

// One rank between the exchanges. `messages`.width and num_ranks are the problem's.
class DecodeRank {
 public:
  DecodeRank(const DecodeProblem& problem, const ResultMessages& messages, StepPolicy policy, std::int64_t rank);

  const float* pack();                           // [padded_rows, record floats], memory of kernels
  void serve(const Mirror<float>& all_records);  // routes, computes, packs results
  void receive(const std::vector<DecodeRank>& ranks);
  void finish(std::int64_t moe_layer);

  std::vector<float> residual() const;
  HeaderMismatch mismatch() const;
  const RoutingResult& routing() const { return step_.result(); }
  Mirror<float>& received() { return received_; }

 private:
  std::int64_t message_begin(std::int64_t rank, const std::vector<std::int32_t>& before) const;

  const DecodeProblem* problem_;
  ResultMessages messages_;
  std::int64_t rank_, max_work_;
  RecordShape record_;
  RoutingTables tables_;
  RoutingStep step_;
  ExpertWeightTable table_;
  Mirror<std::int32_t> ids_, positions_, ids_of_all_, row_begin_;
  Mirror<float> rows_, weights_, residual_, records_, hidden_, results_, send_, received_;
  Mirror<HeaderMismatch> mismatch_;
};

// The whole step.
std::vector<DecodeRank> decode_on_ranks(const DecodeProblem& problem, StepPolicy policy, std::int64_t capacity);

}  // namespace metro::test
