// The policy `makespan`: reading experts and computing rows both take time, so it balances neither of them alone but
// the time of the slowest rank. After TEMPO (arXiv 2608.13057).
#pragma once

#include "routing/policy.hpp"
#include "routing/replica_map.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// Time of a rank in one MoE layer, in ns: the larger of
//   read_fixed + read_per_expert * (active experts on it)   and   compute_fixed + compute_per_row * (rows it serves).
// All >= 0, and at most `largest` so that sums stay within 64 bits. The defaults are what TEMPO reports for DeepSeek-V3
// in fp8: 14.78 us per expert and 0.0945 us per row, balanced at about 157 rows per expert.
struct MakespanCosts {
  static constexpr std::int64_t largest = 1'000'000'000;

  std::int64_t read_fixed = 0;
  std::int64_t read_per_expert = 14780;
  std::int64_t compute_fixed = 0;
  std::int64_t compute_per_row = 94;

  std::int64_t of(std::int64_t num_active, std::int64_t num_rows) const {
    const std::int64_t read = read_fixed + read_per_expert * num_active;
    const std::int64_t compute = compute_fixed + compute_per_row * num_rows;
    return read > compute ? read : compute;
  }
};

// Scratch and result; sized once, nothing is allocated while routing.
class MakespanRouter {
 public:
  // Keeps a reference to `map`, which must outlive it.
  MakespanRouter(const MakespanCosts& costs, const ReplicaMap& map);

  // counts [num_experts]: rows per expert, >= 0. Shares the rows of every expert among its hosts so that the slowest
  // rank takes little time: starting from `exact` and from `even`, each improved until no target below its time is met
  // by the repair in makespan.cpp, the faster of the two. Never slower than `exact` or `even` themselves.
  void route(std::span<const std::int32_t> counts);

  // Rows of expert e served by its hosts, in the order of map.hosts_of(e).
  std::span<const std::int64_t> shares_of(std::int64_t expert) const;
  std::int64_t time() const { return result_.time; }  // ns of the slowest rank

  std::int64_t num_bytes() const;  // memory held

 private:
  // Who serves how much.
  struct Shares {
    std::vector<std::int64_t> rows_of_pair;  // [pairs of expert and host]
    std::vector<std::int64_t> rows_of_rank;  // [num_ranks]
    std::vector<std::int64_t> active;        // [num_ranks] pairs of the rank with rows
    std::int64_t time = 0;
  };
  struct Target {
    std::int64_t most_active, most_rows;  // what a rank may have
  };

  void start_from_exact(std::span<const std::int32_t> counts);
  void start_from_even(std::span<const std::int32_t> counts);
  void account(Shares& shares) const;
  void improve(Shares& best);
  Target target_for(std::int64_t time) const;
  bool meet(const Target& target);
  bool drop_expert(std::int32_t rank, const Target& target);
  std::int64_t host_for_share(std::int64_t pair, const Target& target) const;
  bool pass_rows_on(std::int32_t from_rank, const Target& target, bool may_activate);
  void reach_from(std::int32_t rank, const Target& target, bool may_activate);
  void move_rows(std::int64_t from_pair, std::int64_t to_pair, std::int64_t rows);

  MakespanCosts costs_;
  const ReplicaMap* map_;
  ExpertRouter exact_;
  std::vector<std::int32_t> expert_to_rank_;                 // [num_experts]
  std::vector<std::int32_t> pair_to_expert_, pair_to_rank_;  // [pairs]
  std::vector<std::int64_t> pairs_of_rank_, rank_begin_;     // pairs grouped by rank, experts ascending
  Shares result_, other_, trial_;
  std::vector<std::int32_t> queue_;                      // ranks reached, in order
  std::vector<std::int64_t> reached_from_, reached_by_;  // [num_ranks] the pairs rows move between; -1: none
};

}  // namespace metro
