// Shared beginnings of prompts and the change of RoPE factors, against a cache that remembers what each slot holds.
#include "requests/scheduler.hpp"

#include "requests/scheduler_harness.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <random>
#include <utility>

using metro::FinishedSequence;
using metro::PromptTokens;
using metro::Request;
using metro::SampledToken;
using metro::Scheduler;
using metro::SchedulerLimits;
using metro::SequenceRows;
using metro::StepKind;
using metro::StepPlan;
using metro::test::describe;
using metro::test::model_token;
using metro::test::roomy;
using metro::test::sample;

namespace {

using Random = std::mt19937_64;

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

constexpr std::int64_t max_context = 64;

// The KV cache of every rank, each slot holding which tokens it was computed from, and with which set of factors.
class CacheOracle {
 public:
  explicit CacheOracle(const SchedulerLimits& limits) : limits_(limits), slots_(at(limits.num_ranks)) {}

  // A step as the forward pass makes it: all rows are written, then every row reads all positions up to its own.
  void step(const StepPlan& plan) {
    for (std::size_t rank = 0; rank < plan.rows_of_rank.size(); ++rank) {
      std::map<std::int64_t, bool> written;
      for (const SequenceRows& rows : plan.rows_of_rank[rank]) {
        check_order(rows);
        const std::vector<std::int64_t> contents = contents_of(rows);
        for (std::int64_t i = rows.first_position; i < rows.first_position + rows.num_rows; ++i) {
          require(written.emplace(slot_of(rows, i), true).second, "one row writes a slot");
          slots_[rank][slot_of(rows, i)] = contents[at(i)];
        }
      }
      for (const SequenceRows& rows : plan.rows_of_rank[rank]) {
        const std::vector<std::int64_t> contents = contents_of(rows);
        for (std::int64_t i = 0; i < rows.first_position + rows.num_rows; ++i) {
          const auto slot = slots_[rank].find(slot_of(rows, i));
          require(slot != slots_[rank].end() && slot->second == contents[at(i)],
                  "a row reads what was computed from the tokens of its sequence, with its set of factors");
        }
      }
    }
  }

  std::int64_t num_shared() const { return num_shared_; }
  std::int64_t num_repeated() const { return num_repeated_; }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static void require(bool holds, const char* what) {
    if (!holds) {
      FAIL("violated: " << what);
    }
  }

  std::int64_t slot_of(const SequenceRows& rows, std::int64_t position) const {
    return rows.sequence->kv.blocks[at(position / limits_.block_tokens)] * limits_.block_tokens +
           position % limits_.block_tokens;
  }

  // A number for each beginning of the sequence, the same only for the same tokens and set.
  std::vector<std::int64_t> contents_of(const SequenceRows& rows) {
    std::vector<std::int64_t> contents;
    std::int64_t before = -1 - rows.sequence->rope_set;
    for (const std::int32_t token : rows.sequence->tokens) {
      before = known_.try_emplace({before, token}, std::ssize(known_)).first->second;
      contents.push_back(before);
    }
    return contents;
  }

  // Every position has one provider: another sequence before the first row, then the rows one after the other.
  void check_order(const SequenceRows& rows) {
    const metro::Sequence& sequence = *rows.sequence;
    const std::int64_t num_shared = sequence.kv.num_shared * limits_.block_tokens;
    auto [next, is_new] = next_position_.try_emplace(sequence.request.id, num_shared);
    if (is_new) {
      num_shared_ += num_shared;
      require(num_shared <= std::ssize(sequence.request.prompt) && num_shared < sequence.num_given,
              "only the prompt is shared, and never the last position that was given");
      require(!sequence.request.scores_prompt || num_shared == 0, "a prompt that is scored is computed");
    }
    const std::int64_t end = rows.first_position + rows.num_rows;
    const bool repeats = rows.first_position == 0 && next->second > 0;
    require(repeats || rows.first_position == next->second, "positions follow each other");
    require(!repeats || (limits_.rope_switch_at > 0 && next->second == limits_.rope_switch_at &&
                         repeated_.emplace(sequence.request.id, true).second),
            "positions are computed again once, when the set of factors changes");
    num_repeated_ += repeats ? 1 : 0;
    next->second = end;
    require(!rows.samples || sequence.rope_set == (limits_.rope_switch_at > 0 && end > limits_.rope_switch_at ? 1 : 0),
            "a token is chosen with the set of factors for the length of its sequence");
  }

  SchedulerLimits limits_;
  std::vector<std::map<std::int64_t, std::int64_t>> slots_;
  std::map<std::pair<std::int64_t, std::int32_t>, std::int64_t> known_;
  std::map<std::int64_t, std::int64_t> next_position_;  // by request
  std::map<std::int64_t, bool> repeated_;
  std::int64_t num_shared_ = 0, num_repeated_ = 0;
};

SchedulerLimits random_limits(Random& random) {
  SchedulerLimits limits;
  limits.num_ranks = between(random, 1, 3);
  limits.max_sequences_per_rank = between(random, 1, 8);
  limits.prefill_chunk = between(random, 1, 40);
  limits.prefill_min = static_cast<double>(between(random, 0, 4)) / 4.0;
  limits.block_tokens = between(random, 1, 9);
  const std::int64_t least_blocks = (max_context + limits.block_tokens - 1) / limits.block_tokens;
  limits.kv_blocks_per_rank = least_blocks + between(random, 0, 3 * least_blocks);
  limits.end_tokens = {3, 17};
  return limits;
}

// Prompts that begin like one of three texts, for a part of their length.
std::vector<Request> random_requests(Random& random) {
  std::vector<Request> requests;
  const std::int64_t num_requests = between(random, 1, 60);
  const std::int64_t longest = between(random, 1, 30);
  for (std::int64_t id = 0; id < num_requests; ++id) {
    Request request;
    request.id = id;
    request.max_tokens = static_cast<std::int32_t>(between(random, 1, longest));
    request.ignore_eos = between(random, 0, 1) == 0;
    request.scores_prompt = between(random, 0, 9) == 0;
    const std::int64_t length = between(random, 1, max_context - request.max_tokens);
    const std::int64_t text = between(random, 0, 2);
    const std::int64_t common = between(random, 0, length);
    for (std::int64_t i = 0; i < length; ++i) {
      request.prompt.push_back(static_cast<std::int32_t>(i < common ? 100 * text + i : between(random, 0, 2)));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::int32_t> ids_of(const std::vector<SampledToken>& tokens) {
  std::vector<std::int32_t> ids;
  for (const SampledToken& token : tokens) {
    ids.push_back(token.token);
  }
  return ids;
}

using Completions = std::map<std::int64_t, std::vector<std::int32_t>>;

struct Counts {
  std::int64_t num_shared = 0, num_repeated = 0, num_steps = 0;
};

// Runs at most num_steps steps, with a rank beside it that keeps only tokens of its own.
void run(const SchedulerLimits& limits, std::vector<Request>& requests, std::int64_t num_steps, Completions& done,
         Counts& counts) {
  Scheduler scheduler(limits);
  SchedulerLimits own_limits = limits;
  own_limits.keeps_tokens_of = limits.num_ranks - 1;
  Scheduler other(own_limits);
  CacheOracle oracle(limits);
  scheduler.add(requests);
  other.add(requests);
  for (std::int64_t step = 0; step < num_steps && !scheduler.idle(); ++step) {
    const StepPlan plan = scheduler.plan_step();
    REQUIRE(describe(other.plan_step()) == describe(plan));
    oracle.step(plan);
    const auto sampled = sample(plan);
    for (FinishedSequence& finished : scheduler.apply(sampled)) {
      done[finished.request.id] = ids_of(finished.tokens);
    }
    other.apply(sampled);
    REQUIRE(other.digest() == scheduler.digest());
    ++counts.num_steps;
  }
  requests.clear();
  for (const auto& [request, tokens] : scheduler.unfinished()) {
    requests.push_back(*request);
    requests.back().generated = *tokens;
    requests.back().scores_prompt = request->scores_prompt && tokens->empty();
  }
  counts.num_shared += oracle.num_shared();
  counts.num_repeated += oracle.num_repeated();
}

Completions all_completions(const SchedulerLimits& limits, std::vector<Request> requests, Counts& counts) {
  Completions done;
  run(limits, requests, 1'000'000, done, counts);
  return done;
}

std::vector<Request> alike(std::int64_t num_requests, std::int64_t num_common, std::int64_t num_own) {
  std::vector<Request> requests;
  for (std::int64_t id = 0; id < num_requests; ++id) {
    Request request = metro::test::make_request(id, num_own, 3);
    for (std::int64_t i = 0; i < num_common; ++i) {
      request.prompt.insert(request.prompt.begin(), static_cast<std::int32_t>(2000 + i));
    }
    requests.push_back(request);
  }
  return requests;
}

}  // namespace

TEST_CASE("every sequence reads what was computed from its own tokens, whoever computed it") {
  Counts shared;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    SchedulerLimits limits = random_limits(random);
    const std::vector<Request> requests = random_requests(random);
    CAPTURE(seed);

    const Completions with = all_completions(limits, requests, shared);
    limits.share_prefixes = false;
    Counts unshared;
    const Completions without = all_completions(limits, requests, unshared);

    REQUIRE(with == without);
    REQUIRE(with.size() == requests.size());
    REQUIRE(unshared.num_shared == 0);
  }
  CHECK(shared.num_shared > 10'000);
}

TEST_CASE("with a change of RoPE factors every token is chosen with the set for its length, also after restarts") {
  Counts counts;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    SchedulerLimits limits = random_limits(random);
    limits.rope_switch_at = between(random, 1, max_context);
    std::vector<Request> requests = random_requests(random);
    CAPTURE(seed);
    SchedulerLimits plain = limits;
    plain.share_prefixes = false;
    Counts unused;
    const Completions expected = all_completions(plain, requests, unused);

    Completions done;
    std::int64_t num_parts = 0;
    while (!requests.empty()) {
      run(limits, requests, num_parts < 3 ? between(random, 1, 20) : 1'000'000, done, counts);
      ++num_parts;
      REQUIRE(num_parts <= 4);
    }

    REQUIRE(done == expected);
  }
  CHECK(counts.num_shared > 5'000);
  CHECK(counts.num_repeated > 200);
}

TEST_CASE("a common beginning is computed once per rank, in the same step in which others use it") {
  Scheduler scheduler([] {
    SchedulerLimits limits = roomy(2);
    limits.prefill_chunk = 100;
    return limits;
  }());
  scheduler.add(alike(6, 12, 2));  // blocks of 4 tokens: three are common

  const StepPlan plan = scheduler.plan_step();
  scheduler.apply(sample(plan));

  CHECK(describe(plan) == "P [0:0+14! 2:12+2! 4:12+2!] [1:0+14! 3:12+2! 5:12+2!]");
  const PromptTokens each{.num_computed = 14 + 2 + 2, .num_shared = 2 * 12};
  CHECK(scheduler.prompt_tokens() == std::vector<PromptTokens>{each, each});
}

TEST_CASE("a sequence waits for the beginning that another one has not computed yet") {
  Scheduler scheduler(roomy(1));  // chunks of 8 rows
  scheduler.add(alike(2, 12, 2));
  std::vector<std::string> steps;
  while (steps.size() < 2) {
    const StepPlan plan = scheduler.plan_step();
    steps.push_back(describe(plan));
    scheduler.apply(sample(plan));
  }

  CHECK(steps == std::vector<std::string>{"P [0:0+8]", "P [0:8+6! 1:12+2!]"});
}

TEST_CASE("the same prompt is shared but for the block of its last token") {
  Scheduler scheduler(roomy(1));
  scheduler.add(alike(2, 8, 0));

  CHECK(describe(scheduler.plan_step()) == "P [0:0+8!]");
  scheduler.apply({{SampledToken{1, 0.0F, {}}}});
  CHECK(describe(scheduler.plan_step()) == "P [1:4+4!]");
}

TEST_CASE("tokens of an earlier part of the run are computed by their own sequence, also where they fill blocks") {
  Scheduler scheduler(roomy(1));
  std::vector<Request> requests = alike(2, 8, 0);
  for (Request& request : requests) {
    request.max_tokens = 20;
    request.generated.resize(9, SampledToken{7, 0.0F, {}});
  }
  scheduler.add(requests);

  CHECK(describe(scheduler.plan_step()) == "P [0:0+8]");
  scheduler.apply({{}});
  CHECK(describe(scheduler.plan_step()) == "P [0:8+8]");
  scheduler.apply({{}});
  CHECK(describe(scheduler.plan_step()) == "P [0:16+1! 1:8+7]");
}

TEST_CASE("a sequence that outgrows the first set of RoPE factors computes all its tokens again and scores none") {
  SchedulerLimits limits = roomy(1);
  limits.rope_switch_at = 7;
  Scheduler scheduler(limits);
  Request request = metro::test::make_request(0, 6, 4);
  request.scores_prompt = true;
  scheduler.add({request});

  std::vector<std::string> steps;
  std::vector<std::int64_t> num_scored;
  std::vector<std::int64_t> num_repeated;
  while (!scheduler.idle()) {
    const StepPlan plan = scheduler.plan_step();
    steps.push_back(describe(plan));
    num_scored.push_back(plan.rows_of_rank[0][0].num_scored());
    num_repeated.push_back(plan.rows_of_rank[0][0].num_repeated());
    CHECK(plan.rows_of_rank[0][0].sequence->rope_set == (steps.size() < 3 ? 0 : 1));
    scheduler.apply(sample(plan));
  }

  // Position 6 makes seven positions; the eighth token is the first to be read with the other set.
  CHECK(steps == std::vector<std::string>{"P [0:0+6!]", "D [0:6+1!]", "P [0:0+8!]", "D [0:8+1!]"});
  CHECK(num_scored == std::vector<std::int64_t>{5, 0, 0, 0});
  CHECK(num_repeated == std::vector<std::int64_t>{0, 0, 7, 0});
}

TEST_CASE("a prompt beyond the first set of RoPE factors is computed with the second from its first chunk on") {
  SchedulerLimits limits = roomy(1);
  limits.rope_switch_at = 9;
  Scheduler scheduler(limits);
  scheduler.add({metro::test::make_request(0, 10, 2)});

  const StepPlan plan = scheduler.plan_step();

  CHECK(describe(plan) == "P [0:0+8]");
  CHECK(plan.rows_of_rank[0][0].sequence->rope_set == 1);
}

TEST_CASE("what the scheduler knows of prefixes stays bounded with a thousand ranks") {
  SchedulerLimits limits;
  limits.num_ranks = 1024;
  limits.max_sequences_per_rank = 4;
  limits.prefill_chunk = 4096;
  limits.kv_blocks_per_rank = 1'000'000;
  SchedulerLimits plain = limits;
  plain.share_prefixes = false;
  Scheduler scheduler(limits);
  Scheduler unshared(plain);

  // Every prompt of 4096 tokens is its own: a rank has come across 4 * 256 blocks, more than it may remember.
  std::vector<Request> requests;
  for (std::int64_t id = 0; id < 4096; ++id) {
    requests.push_back(metro::test::make_request(id, 4096, 1));
    requests.back().prompt[0] = static_cast<std::int32_t>(id);
  }
  scheduler.add(requests);
  unshared.add(requests);
  while (!scheduler.idle()) {
    const StepPlan plan = scheduler.plan_step();
    unshared.plan_step();
    const auto sampled = sample(plan);
    scheduler.apply(sampled);
    unshared.apply(sampled);
  }

  CHECK(unshared.idle());
  CHECK(scheduler.num_bytes() < unshared.num_bytes() + 100'000'000);
}
