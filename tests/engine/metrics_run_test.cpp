// metrics.h5 of a whole run agrees with its completions and with itself. Run at several rank counts.
#include "base/file.hpp"
#include "base/json.hpp"
#include "deck/deck.hpp"
#include "engine/run_on_tiny.hpp"
#include "placement/moves.hpp"
#include "report/metrics_reader.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <set>
#include <string>

using metro::MetricsReader;
using metro::StepKind;
using metro::test::RunOnTinyModel;

namespace {

struct Completion {
  std::int64_t prompt_tokens = 0, generated_tokens = 0;
  std::string finish_reason;
};

std::map<std::string, Completion> read_completions(const std::string& path) {
  std::map<std::string, Completion> completions;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json parsed = metro::parse_json(line, path, metro::ExitCode::input);
    const auto& body = parsed.at("response").at("body");
    completions[parsed.at("custom_id")] = {body.at("usage").at("prompt_tokens"),
                                           body.at("usage").at("completion_tokens"),
                                           body.at("choices").at(0).at("finish_reason")};
  }
  return completions;
}

void check_steps(const MetricsReader& reader, std::int64_t prompt_tokens, std::int64_t generated_tokens,
                 std::int64_t num_requests, bool is_optimal) {
  std::map<StepKind, std::int64_t> rows;
  std::int64_t bytes_sent = 0;
  reader.for_each_step([&](const metro::StepMetrics& step) {
    rows[step.kind] += step.rows;
    bytes_sent += step.bytes_sent;
    CHECK(step.sequences <= step.rows);
    for (const metro::LayerActivation& layer : step.layers) {
      CHECK(layer.lambda >= layer.optimum);
      CHECK((!is_optimal || layer.lambda == layer.optimum));
      CHECK(layer.activated >= layer.active);
      CHECK(layer.optimum * reader.identity().placement.num_ranks >= layer.active);
      CHECK(layer.active <= step.rows * reader.identity().spec.moe.top_k);
      CHECK(layer.active >= reader.identity().spec.moe.top_k);
    }
    for (std::size_t phase = 0; phase < metro::num_phases; ++phase) {
      CHECK(step.phases.mean[phase] >= 0.0F);
      CHECK(step.phases.mean[phase] <= step.phases.max[phase] * 1.0001F);
    }
  });
  std::int64_t num_shared = 0;
  const auto totals = reader.totals();
  for (const metro::PromptTokens& rank : totals.value().prompt_of_rank) {
    num_shared += rank.num_shared;
  }
  CHECK(rows[StepKind::prefill] == prompt_tokens - num_shared);
  // The first token of a request comes from its last prompt row; its last token is not computed any more.
  CHECK(rows[StepKind::decode] == generated_tokens - num_requests);
  CHECK(bytes_sent <= reader.totals().value().bytes_sent_sum);
  CHECK((bytes_sent > 0) == (reader.identity().placement.num_ranks > 1));
}

}  // namespace

TEST_CASE("the metrics of a run agree with its completions") {
  const std::string policy = GENERATE("exact", "metro", "even");
  CAPTURE(policy);
  const auto transport = metro::make_mpi_transport(60.0);

  const RunOnTinyModel run(*transport, policy);

  CHECK(run.exit_code() == metro::ExitCode::done);
  if (transport->rank() == 0) {
    const auto completions = read_completions(run.output("completions.jsonl"));
    const MetricsReader reader(run.output("metrics.h5"));
    CHECK(completions.size() == 10);
    std::int64_t prompt_tokens = 0, generated_tokens = 0, num_requests = 0;
    reader.for_each_request([&](const metro::RequestMetrics& request) {
      CAPTURE(request.custom_id);
      REQUIRE(completions.count(request.custom_id) == 1);
      const Completion& completion = completions.at(request.custom_id);
      CHECK(request.prompt_tokens == completion.prompt_tokens);
      CHECK(request.generated_tokens == completion.generated_tokens);
      CHECK((request.finish_reason == metro::FinishReason::stop) == (completion.finish_reason == "stop"));
      CHECK(request.first_step_s < request.first_token_s);
      CHECK(request.first_token_s <= request.last_token_s);
      CHECK(request.last_token_s <= reader.totals().value().run_s);
      prompt_tokens += request.prompt_tokens;
      generated_tokens += request.generated_tokens;
      ++num_requests;
    });
    CHECK(num_requests == 10);
    check_steps(reader, prompt_tokens, generated_tokens, num_requests, policy == "exact");
    CHECK(reader.totals().value().num_rejected == 1);
    CHECK(reader.identity().placement.num_ranks == transport->size());
    CHECK(std::ssize(reader.identity().rank_to_host) == transport->size());
  }
  transport->barrier();  // before rank 0 removes the folder
}

TEST_CASE("the resolved deck stands beside the completions and gives the same deck") {
  const auto transport = metro::make_mpi_transport(60.0);

  const RunOnTinyModel run(*transport, "exact");

  if (transport->rank() == 0) {
    const std::string text = metro::read_file(run.output("deck.toml"), metro::ExitCode::input);
    CHECK(text == metro::deck_to_toml(run.deck()));
    CHECK(metro::deck_to_toml(metro::parse_deck(text, "deck.toml", {})) == text);
    CHECK(MetricsReader(run.output("metrics.h5")).identity().deck == text);
  }
  transport->barrier();
}

TEST_CASE("a run that rebalances gives the same completions and records every placement") {
  const std::string source = GENERATE("auto", "peers", "checkpoint");
  const auto transport = metro::make_mpi_transport(60.0);

  const RunOnTinyModel still(*transport, "exact");
  const RunOnTinyModel moving(*transport, "exact",
                              "experts.rebalance_steps = 4\nexperts.rebalance_source = \"" + source + "\"\n");

  if (transport->rank() == 0) {
    const auto lines_of = [](const RunOnTinyModel& run) {
      std::ifstream file(run.output("completions.jsonl"));
      std::multiset<std::string> lines;
      for (std::string line; std::getline(file, line);) {
        lines.insert(line);
      }
      return lines;
    };
    CHECK(lines_of(moving).size() == 10);
    CHECK(lines_of(moving) == lines_of(still));

    const MetricsReader reader(moving.output("metrics.h5"));
    std::int64_t num_steps = 0, bytes_sent = 0, num_changes = 0, slots_moved = 0;
    reader.for_each_step([&](const metro::StepMetrics& step) {
      ++num_steps;
      bytes_sent += step.bytes_sent;
      for (const metro::LayerActivation& layer : step.layers) {
        CHECK(layer.lambda == layer.optimum);  // as long as recorder and routing know the same placement
      }
    });
    metro::Placement placement = reader.identity().placement;
    reader.for_each_rebalance([&](const metro::RebalanceMetrics& change) {
      CHECK(change.step == 4 * ++num_changes);
      metro::Placement next = placement;
      next.slot_to_expert = change.slot_to_expert;
      CHECK(change.slots_moved == metro::num_slots_changed(placement, next));
      CHECK(change.balance_before > 0.0);
      CHECK(change.balance_after <= 1.0 + 1e-9);
      CHECK((change.bytes_read == 0 || source != "peers"));
      slots_moved += change.slots_moved;
      bytes_sent += change.bytes_sent;
      placement = next;
    });
    CHECK(num_changes == (num_steps - 1) / 4);
    CHECK(slots_moved > 0);
    CHECK(bytes_sent <= reader.totals().value().bytes_sent_sum);
    std::int64_t without = 0;
    MetricsReader(still.output("metrics.h5")).for_each_rebalance([&](const auto&) { ++without; });
    CHECK(without == 0);
  }
  transport->barrier();
}
