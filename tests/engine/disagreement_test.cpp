// Ranks that would disagree stop with exit code 70 instead of computing something wrong.
#include "base/error.hpp"
#include "decoder/expert_service.hpp"
#include "engine/step_record.hpp"
#include "support/expect_error.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <vector>

namespace {

// Never asked: no test here serves a row.
struct NoExperts : metro::ExpertStore {
  metro::ExpertWeights acquire(std::int64_t, std::int64_t) override { throw metro::Bug("no experts here"); }
  std::int64_t num_bytes() const override { return 0; }
};

}  // namespace

TEST_CASE("a rank that routed differently is named with the layer") {
  const auto transport = metro::make_mpi_transport(60.0);
  metro::ModelSpec spec;
  spec.hidden_size = 4;
  spec.moe = {.num_experts = 2, .top_k = 1, .intermediate_size = 4};
  NoExperts store;
  const auto exchange = metro::make_device_exchange(*transport);
  metro::PhaseClock clock;
  metro::ExpertService service(spec, store, *exchange, {.exchange_bytes = 1 << 16}, clock);
  const std::vector<std::int64_t> none(static_cast<std::size_t>(transport->size()), 0);
  const bool odd_one = transport->rank() == transport->size() - 1 && transport->size() > 1;

  service.begin(none, 1, metro::ExpertArithmetic::reproducible);
  const auto serve = [&] { service.serve_round(5, 0, {}, none, nullptr, odd_one ? 8 : 7); };

  if (transport->size() == 1) {
    CHECK_NOTHROW(serve());
  } else {
    metro::test::expect_error(metro::ExitCode::internal, {"disagree", "MoE layer 5"}, serve);
  }
}

TEST_CASE("a rank with another schedule or another placement is named by all ranks") {
  const bool in_placement = GENERATE(false, true);
  const auto transport = metro::make_mpi_transport(60.0);
  metro::StepPlan plan;
  plan.rows_of_rank.resize(static_cast<std::size_t>(transport->size()));
  const bool odd_one = transport->rank() == transport->size() - 1 && transport->size() > 1;
  const metro::AgreedState state{odd_one && !in_placement ? 8U : 7U, odd_one && in_placement ? 6U : 5U};
  const std::string last = "ranks 0 and " + std::to_string(transport->size() - 1);
  const auto exchange = [&] { metro::exchange_step_record(plan, {}, state, *transport); };

  if (transport->size() == 1) {
    CHECK_NOTHROW(exchange());
  } else {
    metro::test::expect_error(metro::ExitCode::internal, {last.c_str(), in_placement ? "placement" : "schedule"},
                              exchange);
  }
}
