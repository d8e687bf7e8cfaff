// A pretended job goes through the same steps as a real one in which all ranks have the same rows.
#include "decoder/decode_routing.hpp"
#include "decoder/ids_exchange.hpp"
#include "decoder/row_exchange.hpp"
#include "engine/step_batch.hpp"
#include "engine/step_record.hpp"
#include "placement/placement.hpp"
#include "requests/scheduler.hpp"
#include "transport/pretend_transport.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t sequences_per_rank = 3;
constexpr std::int64_t num_experts = 12;
constexpr std::int64_t top_k = 2;
constexpr std::int64_t hidden = 4;

metro::ModelSpec small_spec() {
  metro::ModelSpec spec;
  spec.hidden_size = hidden;
  spec.moe = {.num_experts = num_experts, .top_k = top_k, .intermediate_size = 4};
  return spec;
}

metro::SchedulerLimits limits_of(std::int64_t num_ranks) {
  metro::SchedulerLimits limits;
  limits.num_ranks = num_ranks;
  limits.max_sequences_per_rank = sequences_per_rank;
  limits.prefill_chunk = 8;
  limits.kv_blocks_per_rank = 12;
  limits.block_tokens = 4;
  return limits;
}

// As many on every rank at any time. The second third ends before the others, so that requests are admitted later too.
std::vector<metro::Request> requests_for(std::int64_t num_ranks) {
  std::vector<metro::Request> requests;
  for (std::int64_t id = 0; id < 2 * num_ranks * sequences_per_rank; ++id) {
    metro::Request& request = requests.emplace_back();
    request.id = id;
    request.prompt = {1, 2, 3};
    request.max_tokens = id / num_ranks % 3 == 1 ? 2 : 5;
  }
  return requests;
}

// What a rank sees of the steps of a job, all of which every rank computes alike.
struct Trail {
  std::vector<metro::Digest> schedule, routing;
  std::vector<std::int64_t> rows, served, most_served;
  bool operator==(const Trail&) const = default;
};

// Experts of the rows of a rank: the same on all ranks, another choice in every step.
std::vector<std::int32_t> expert_ids(std::int64_t num_rows, std::int64_t step) {
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t k = 0; k < top_k; ++k) {
      ids.push_back(static_cast<std::int32_t>((5 * row + 7 * step + (1 + step % 3) * k) % num_experts));
    }
  }
  return ids;
}

// Exchanges ids and rows and routes them as a decode layer does it.
void decode_layer(const metro::RowBatch& batch, metro::DecodeRouting& routing, metro::IdsExchange& exchange,
                  Trail& trail) {
  const std::vector<std::int32_t> chosen = expert_ids(batch.num_rows(), batch.step);
  const metro::Mirror<std::int32_t> ids("ids", std::ssize(chosen));
  const metro::Mirror<float> weights("weights", std::ssize(chosen));
  const metro::Buffer<float> rows("rows", batch.num_rows() * hidden);
  std::copy(chosen.begin(), chosen.end(), ids.host());
  ids.to_kernels(ids.size());
  const metro::OwnRows own{rows.data(), ids.size(), &ids, &weights};
  std::vector<metro::ServedAssignment> served;

  exchange.gather(batch, own, routing.expert_ids(batch));
  routing.route(0, batch);
  exchange.bring({routing, 0, 0, 1, routing.digest()}, own, served);

  trail.routing.push_back(routing.digest());
  trail.served.push_back(std::ssize(served));
  trail.most_served.push_back(routing.most_served());
}

Trail run_job(metro::Transport& transport) {
  const metro::ModelSpec spec = small_spec();
  const metro::Placement placement = metro::place_trivial(
      1, num_experts, transport.size(), metro::slots_for_replication(num_experts, transport.size(), 1.5));
  const std::vector<metro::ReplicaMap> maps{metro::ReplicaMap(placement.layer(0), num_experts, transport.size())};
  const auto device_exchange = metro::make_device_exchange(transport);
  metro::PhaseClock clock;
  metro::DecodeRouting routing(spec, maps, {}, transport.rank(), transport.size(), sequences_per_rank);
  metro::RowExchange rows(spec, *device_exchange, sequences_per_rank, transport.size() * sequences_per_rank * top_k,
                          clock);
  metro::IdsExchange exchange(spec, rows, *device_exchange, sequences_per_rank, clock);
  metro::Scheduler scheduler(limits_of(transport.size()));
  scheduler.add(requests_for(transport.size()));

  Trail trail;
  for (std::int64_t step = 0; !scheduler.idle(); ++step) {
    const metro::StepPlan plan = scheduler.plan_step();
    const metro::RowBatch batch = metro::batch_of(plan, transport.rank(), step);
    if (batch.decode) {
      decode_layer(batch, routing, exchange, trail);
    }
    metro::RankRecord own;
    for (std::size_t i = 0; i < batch.sampled_rows.size(); ++i) {
      own.sampled.emplace_back().token = static_cast<std::int32_t>(10 * step + static_cast<std::int64_t>(i));
    }
    metro::StepRecord record = metro::exchange_step_record(plan, own, {scheduler.digest(), 0}, transport);
    scheduler.apply(std::move(record.sampled_of_rank));
    trail.schedule.push_back(scheduler.digest());
    trail.rows.push_back(plan.total_rows());
  }
  return trail;
}

}  // namespace

TEST_CASE("a pretended rank plans, routes and records what the same rank of a real job does when all have equal rows") {
  const auto real = metro::make_mpi_transport(60.0);
  const auto pretended = metro::make_pretend_transport({.size = real->size(), .rank = real->rank()});

  const Trail of_real_job = run_job(*real);
  const Trail of_pretended_job = run_job(*pretended);

  CHECK(of_pretended_job == of_real_job);
  CHECK(of_real_job.routing.size() > 4);
  CHECK(of_real_job.schedule.size() > of_real_job.routing.size());
  CHECK(pretended->bytes_sent() == real->bytes_sent());
}

TEST_CASE("every rank of a pretended job comes to the same schedule and the same routing") {
  const std::int64_t size = 64;
  const auto trail_of = [&](std::int64_t rank) {
    Trail trail = run_job(*metro::make_pretend_transport({.size = size, .rank = rank}));
    trail.served.clear();  // that differs
    return trail;
  };

  const Trail first = trail_of(0);

  CHECK(trail_of(size / 2) == first);
  CHECK(trail_of(size - 1) == first);
}

TEST_CASE("a batch has the rows of its rank and says how many every other rank has") {
  std::vector<metro::Sequence> sequences(3);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].tokens = {10, 11, 12, 13};
    sequences[i].kv.blocks.assign(i + 1, static_cast<std::int32_t>(i));
  }
  metro::StepPlan plan;
  plan.kind = metro::StepKind::prefill;
  plan.rows_of_rank = {{{&sequences[0], 0, 4, true}}, {{&sequences[1], 1, 2, false}, {&sequences[2], 3, 1, true}}, {}};

  const metro::RowBatch batch = metro::batch_of(plan, 1, 7);

  CHECK_FALSE(batch.decode);
  CHECK(batch.step == 7);
  CHECK(batch.rows_of_rank == std::vector<std::int64_t>{4, 3, 0});
  CHECK(batch.token_ids == std::vector<std::int32_t>{11, 12, 13});
  CHECK(batch.positions == std::vector<std::int32_t>{1, 2, 3});
  CHECK(batch.sequences == std::vector<std::int32_t>{0, 0, 1});
  CHECK(batch.max_blocks == 3);
  CHECK(batch.block_tables == std::vector<std::int32_t>{1, 1, 0, 2, 2, 2});
  CHECK(batch.sampled_rows == std::vector<std::int32_t>{2});
  CHECK(metro::batch_of(plan, 2, 7).num_rows() == 0);
}

TEST_CASE("rows of a batch say whether they were generated, and where the angles of their set lie") {
  std::vector<metro::Sequence> sequences(2);
  for (metro::Sequence& sequence : sequences) {
    sequence.request.prompt = {10, 11};
    sequence.tokens = {10, 11, 12, 13};
    sequence.kv.blocks = {0};
  }
  sequences[1].rope_set = 1;
  metro::StepPlan plan;
  plan.kind = metro::StepKind::prefill;
  plan.rows_of_rank = {{{&sequences[0], 1, 2, false}, {&sequences[1], 0, 4, true}}};

  const metro::RowBatch batch = metro::batch_of(plan, 0, 7, 100);

  CHECK(batch.positions == std::vector<std::int32_t>{1, 2, 0, 1, 2, 3});
  CHECK(batch.is_generated == std::vector<std::uint8_t>{0, 1, 0, 0, 1, 1});
  CHECK(batch.rope_rows == std::vector<std::int32_t>{1, 2, 100, 101, 102, 103});
  CHECK(metro::batch_of(plan, 0, 7).rope_rows.empty());
}
