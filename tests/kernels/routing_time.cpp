// How long a step takes on the host and as a kernel, side by side in one run. No test: `test_kernels "[time]"` prints
// it. Both start from the ids of all rows and end with the same lists; figures are in docs/routing.md.
#include "base/integers.hpp"
#include "kernels/queue.hpp"
#include "routing/policy.hpp"
#include "routing_step_data.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>

using metro::at;
using metro::ExpertRouter;
using metro::ReplicaMap;
using metro::RoutingPolicy;
using metro::RoutingStep;
using metro::RoutingTables;
using metro::StepPolicy;
using metro::test::Batch;
using metro::test::DeviceRows;
using metro::test::Ids;
using metro::test::Size;
using metro::test::StepProblem;

namespace {

// What src/decoder does with the ids of a step: counts, route, share out, group by expert, number the results.
class HostStep {
 public:
  HostStep(const ReplicaMap& map, const StepProblem& problem, std::int64_t rank)
      : router_(RoutingPolicy::exact, map),
        batch_(&problem.batch),
        rank_(rank),
        counts_(at(problem.num_experts)),
        expert_to_rank_(at(problem.num_experts)),
        served_by_rank_(at(problem.num_ranks)),
        served_of_rank_(at(problem.num_ranks)),
        owned_by_rank_(at(problem.num_ranks)),
        next_of_rank_(at(problem.num_ranks)),
        first_row_(at(problem.num_experts + 1)),
        server_(problem.batch.expert_ids.size()),
        work_(problem.batch.expert_ids.size()),
        returned_row_(problem.batch.expert_ids.size()) {
    served_.reserve(problem.batch.expert_ids.size());
    sent_rows_.reserve(problem.batch.expert_ids.size());
  }

  void route() {
    const Ids& ids = batch_->expert_ids;
    std::fill(counts_.begin(), counts_.end(), 0);
    for (const std::int32_t expert : ids) {
      ++counts_[at(expert)];
    }
    router_.route(counts_, expert_to_rank_);
    share_out();
    std::fill(first_row_.begin(), first_row_.end(), 0);
    for (const std::int32_t assignment : served_) {
      ++first_row_[at(ids[at(assignment)] + 1)];
    }
    for (std::size_t expert = 1; expert < first_row_.size(); ++expert) {
      first_row_[expert] += first_row_[expert - 1];
    }
    sent_rows_.clear();
    for (const std::int32_t assignment : served_) {
      const std::int32_t row = first_row_[at(ids[at(assignment)])]++;
      sent_rows_.push_back(row);
      work_[at(row)] = assignment;
    }
  }

  std::int32_t lambda() const { return router_.lambda(); }
  std::size_t num_served() const { return served_.size(); }

 private:
  void share_out() {
    const Ids& ids = batch_->expert_ids;
    std::fill(served_by_rank_.begin(), served_by_rank_.end(), 0);
    std::fill(served_of_rank_.begin(), served_of_rank_.end(), 0);
    std::fill(owned_by_rank_.begin(), owned_by_rank_.end(), 0);
    served_.clear();
    std::int32_t assignment = 0;
    std::int32_t first_owned = 0;
    for (std::size_t row = 0; row < batch_->row_to_rank.size(); ++row) {
      const std::int32_t owner = batch_->row_to_rank[row];
      first_owned += owner < rank_ ? static_cast<std::int32_t>(batch_->top_k) : 0;
      for (std::int64_t k = 0; k < batch_->top_k; ++k, ++assignment) {
        const std::int32_t server = expert_to_rank_[at(ids[at(assignment)])];
        server_[at(assignment)] = server;
        ++served_by_rank_[at(server)];
        owned_by_rank_[at(server)] += owner == rank_ ? 1 : 0;
        if (server == rank_) {
          ++served_of_rank_[at(owner)];
          served_.push_back(assignment);
        }
      }
    }
    std::int32_t owned = 0;
    for (std::size_t server = 0; server < owned_by_rank_.size(); ++server) {
      next_of_rank_[server] = owned;
      owned += owned_by_rank_[server];
    }
    for (std::int32_t i = 0; i < owned; ++i) {
      returned_row_[at(i)] = next_of_rank_[at(server_[at(first_owned + i)])]++;
    }
  }

  ExpertRouter router_;
  const Batch* batch_;
  std::int64_t rank_;
  Ids counts_, expert_to_rank_, served_by_rank_, served_of_rank_, owned_by_rank_, next_of_rank_, first_row_;
  Ids server_, served_, work_, sent_rows_, returned_row_;
};

// The best of a few repetitions of a hundred calls, in microseconds a call.
template <class F>
double microseconds(const F& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    call();
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / 100;
}

}  // namespace

TEST_CASE("time of the routing step", "[.][time]") {
  std::mt19937_64 random(1);
  for (const Size& size : {Size{128, 8, 20}, {256, 16, 20}, {512, 144, 5}}) {
    for (const std::int64_t rows_of_rank : {4, 32}) {
      StepProblem problem{
          size.num_experts, size.num_ranks, metro::test::random_instance(size, 0.0, 1.0, random).slot_to_expert, {}};
      problem.batch = metro::test::random_batch(size.num_experts, 8,
                                                std::vector<std::int64_t>(at(size.num_ranks), rows_of_rank), random);
      const ReplicaMap map(problem.slot_to_expert, size.num_experts, size.num_ranks);
      HostStep host(map, problem, 0);
      RoutingStep step(StepPolicy::exact, problem.sizes());
      const RoutingTables tables = problem.tables(0);
      const DeviceRows rows(problem);
      double host_us = 1e9, step_us = 1e9;
      for (int i = 0; i < 30; ++i) {
        host_us = std::min(host_us, microseconds([&] { host.route(); }));
        step_us = std::min(step_us, microseconds([&] {
                             step.route(tables, rows.rows());
                             metro::wait_for_kernels();
                           }));
      }
      const auto lists = metro::test::lists_of(step, problem, 0);
      CHECK(lists.lambda.front() == host.lambda());
      CHECK(lists.work.size() == host.num_served());
      fmt::print("{} experts, {} ranks, {} rows a rank: host {:.1f} us, step {:.1f} us (team of {}), ratio {:.2f}\n",
                 size.num_experts, size.num_ranks, rows_of_rank, host_us, step_us, step.team_size(), step_us / host_us);
    }
  }
}
