// Whatever a rank puts into its record arrives at all ranks as it was, under the right rank and request.
#include "engine/step_record.hpp"

#include <catch2/catch.hpp>

#include <deque>

using metro::SampledToken;
using metro::SequenceRows;

namespace {

// Made of the rank and of a number alone, so that every rank knows what the others send.
SampledToken token_of(std::int64_t rank, std::int32_t number, std::int32_t num_logprobs) {
  SampledToken token;
  token.token = static_cast<std::int32_t>(1'000 * rank) + number;
  token.stop_string = number % 3 - 1;
  token.logprob = -0.125F * static_cast<float>(number);
  for (std::int32_t i = 0; i < num_logprobs; ++i) {
    token.likeliest.push_back({token.token + i, token.logprob - static_cast<float>(i)});
  }
  return token;
}

bool is_same(const SampledToken& a, const SampledToken& b) {
  bool same = a.token == b.token && a.stop_string == b.stop_string && a.logprob == b.logprob &&
              a.likeliest.size() == b.likeliest.size();
  for (std::size_t i = 0; same && i < a.likeliest.size(); ++i) {
    same = a.likeliest[i].token == b.likeliest[i].token && a.likeliest[i].logprob == b.likeliest[i].logprob;
  }
  return same;
}

constexpr std::int64_t num_scored = 4;

// A rank has as many sequences as its number: rank 0 has none. All sample, the odd ones also score a prompt of 5
// tokens. Sequence i wants i likeliest tokens, the first none at all.
struct Example {
  std::deque<metro::Sequence> sequences;
  metro::StepPlan plan;

  explicit Example(std::int64_t num_ranks) {
    plan.kind = metro::StepKind::prefill;
    plan.rows_of_rank.resize(static_cast<std::size_t>(num_ranks));
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      for (std::int32_t i = 0; i < rank; ++i) {
        metro::Sequence& sequence = sequences.emplace_back();
        sequence.request.id = 10 * rank + i;
        sequence.request.prompt = {1, 2, 3, 4, 5};
        sequence.request.num_logprobs = i == 0 ? -1 : i;
        sequence.request.scores_prompt = i % 2 == 1;
        plan.rows_of_rank[static_cast<std::size_t>(rank)].push_back({&sequence, 0, 5, true});
      }
    }
  }
};

metro::RankRecord record_of(std::int64_t rank) {
  metro::RankRecord record;
  record.measured.bytes_sent = 7 * rank;
  record.stop = rank == 1;
  for (std::int32_t i = 0; i < rank; ++i) {
    record.sampled.push_back(token_of(rank, i, i));
    for (std::int32_t scored = 0; i % 2 == 1 && scored < num_scored; ++scored) {
      record.prompt_scores.push_back(token_of(rank, 100 * i + scored, i));
    }
  }
  return record;
}

}  // namespace

TEST_CASE("every rank receives the tokens, prompt scores and measurements of all ranks") {
  const auto transport = metro::make_mpi_transport(60.0);
  const Example example(transport->size());

  const metro::StepRecord record =
      metro::exchange_step_record(example.plan, record_of(transport->rank()), {7, 5}, *transport);

  REQUIRE(std::ssize(record.sampled_of_rank) == transport->size());
  std::size_t num_scoring = 0;
  for (std::int64_t rank = 0; rank < transport->size(); ++rank) {
    const auto& sampled = record.sampled_of_rank[static_cast<std::size_t>(rank)];
    CHECK(record.measured_of_rank[static_cast<std::size_t>(rank)].bytes_sent == 7 * rank);
    REQUIRE(std::ssize(sampled) == rank);
    for (std::int32_t i = 0; i < rank; ++i) {
      CHECK(is_same(sampled[static_cast<std::size_t>(i)], token_of(rank, i, i)));
      if (i % 2 == 1) {
        ++num_scoring;
        const auto& scores = record.prompt_scores.at(10 * rank + i);
        REQUIRE(std::ssize(scores) == num_scored);
        for (std::int32_t scored = 0; scored < num_scored; ++scored) {
          CHECK(is_same(scores[static_cast<std::size_t>(scored)], token_of(rank, 100 * i + scored, i)));
        }
      }
    }
  }
  CHECK(record.prompt_scores.size() == num_scoring);
  CHECK(record.stop == (transport->size() > 1));  // rank 1 asks for it
}
