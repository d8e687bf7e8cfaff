// The forward pass against what Hugging Face transformers computes for the same checkpoints (tests/data/README.md):
// every model in tests/data/families, on several ranks, under several policies, prompts whole and in chunks. Where
// kernels have memory of their own, decode steps are routed by the device.
#include "base/file.hpp"
#include "base/json.hpp"
#include "decoder/decoder.hpp"
#include "decoder/listed_decode.hpp"
#include "kernels/buffer.hpp"
#include "support/kernel_memory.hpp"
#include "support/model_fixture.hpp"
#include "support/reference_models.hpp"
#include "transport/device_exchange.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using metro::RoutingPolicy;
using nlohmann::json;

namespace {

constexpr std::int64_t most_sequences = 3;
constexpr std::int64_t block_tokens = 8;
constexpr std::int64_t blocks_of_sequence = 8;

// Tolerances as tests/data/README.md has them.
constexpr double logit_tolerance = 2e-4;
constexpr double hidden_tolerance = 2e-4;
constexpr double length_tolerance = 1e-3;
constexpr double weight_tolerance = 1e-4;

struct Setting {
  RoutingPolicy policy = RoutingPolicy::exact;
  double replication = 1.0;
  std::int64_t chunk = 0;  // tokens of a sequence in a prefill step
  metro::ListedSettings listed = {};
};

std::vector<Setting> settings() {
  if (metro::kernels_use_host_memory()) {
    return {{RoutingPolicy::exact, 1.0, 64}, {RoutingPolicy::exact, 1.5, 5}, {RoutingPolicy::even, 1.5, 16}};
  }
  return {{RoutingPolicy::exact, 1.5, 16, {.most_rows = 4, .fixed_messages = true, .graphs = true}},
          {RoutingPolicy::even, 1.0, 64, {.most_rows = 4}}};
}

// Of the reference's prompts, those that a rank has: all, none, the longest and the shortest, in turns.
std::vector<std::size_t> prompts_of(std::int64_t rank) {
  const std::vector<std::size_t> choices[] = {{0, 1, 2}, {}, {2, 0}};
  return choices[rank % 3];
}

json read_reference(const std::string& folder) {
  const std::string path = folder + "/reference.json";
  return metro::parse_json(metro::read_file(path, metro::ExitCode::input), path, metro::ExitCode::input);
}

using RowPlace = std::pair<std::int32_t, std::int32_t>;  // sequence, position

// What a token's row went through, by MoE layer or layer.
struct RowTrace {
  std::map<std::int64_t, std::vector<std::int32_t>> ids;
  std::map<std::int64_t, std::vector<float>> weights;
  std::map<std::int64_t, std::vector<float>> hidden;
};

// Keeps all of it, of all prefill steps.
class Recorder : public metro::StepObserver {
 public:
  explicit Recorder(std::int64_t hidden_size) : hidden_size_(hidden_size) {}

  void begin_step(const metro::RowBatch& batch) { batch_ = batch; }
  const RowTrace& row(const RowPlace& place) { return rows_[place]; }

  void router_choices(std::int64_t moe_layer, std::int64_t num_rows, std::span<const std::int32_t> expert_ids,
                      std::span<const float> weights) override {
    for (std::size_t row = 0; row < static_cast<std::size_t>(num_rows); ++row) {
      const std::size_t top_k = expert_ids.size() / static_cast<std::size_t>(num_rows);
      const auto ids_of_row = expert_ids.subspan(row * top_k, top_k);
      const auto weights_of_row = weights.subspan(row * top_k, top_k);
      trace_of(row).ids[moe_layer].assign(ids_of_row.begin(), ids_of_row.end());
      trace_of(row).weights[moe_layer].assign(weights_of_row.begin(), weights_of_row.end());
    }
  }
  void layer_done(std::int64_t layer, std::int64_t num_rows, const float* residual) override {
    const std::vector<float> rows = metro::test::host_copy(residual, num_rows * hidden_size_);
    for (std::int64_t row = 0; row < num_rows; ++row) {
      trace_of(static_cast<std::size_t>(row))
          .hidden[layer]
          .assign(rows.begin() + row * hidden_size_, rows.begin() + (row + 1) * hidden_size_);
    }
  }

 private:
  RowTrace& trace_of(std::size_t row) { return rows_[{batch_.sequences[row], batch_.positions[row]}]; }

  std::int64_t hidden_size_;
  metro::RowBatch batch_;
  std::map<RowPlace, RowTrace> rows_;
};

// A model and the sequences of this rank.
class Run {
 public:
  Run(metro::CheckpointReader& checkpoint, metro::DeviceExchange& exchange, const Setting& setting,
      const std::vector<std::vector<std::int32_t>>& prompts)
      : spec_(&checkpoint.spec()),
        chunk_(setting.chunk),
        limits_(limits_of(setting)),
        placement_(placement_of(*spec_, exchange.size(), setting.replication)),
        routing_{.decode = setting.policy},
        decoder_(checkpoint, {checkpoint, limits_.max_context, metro::Sharing::per_rank, exchange.transport()},
                 placement_, routing_, exchange, limits_),
        batch_(limits_, exchange.transport(), spec_->rope.switch_at),
        recorder_(spec_->hidden_size),
        done_(prompts.size(), 0),
        logits_(prompts.size()) {
    for (const auto& prompt : prompts) {
      batch_.add(prompt);
    }
  }

  // In as many steps as the longest prompt of all ranks needs.
  void prefill(std::int64_t longest) {
    for (std::int64_t fed = 0; fed < longest; fed += chunk_) {
      forward(false);
    }
  }
  // tokens [sequences of this rank]: the next of each.
  void decode(const std::vector<std::int32_t>& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      batch_.tokens(i).push_back(tokens[i]);
    }
    forward(true);
  }

  // Of the newest token of a sequence. [vocab]
  const std::vector<float>& logits(std::size_t sequence) const { return logits_[sequence]; }
  const RowTrace& row(std::size_t sequence, std::size_t position) {
    return recorder_.row({static_cast<std::int32_t>(sequence), static_cast<std::int32_t>(position)});
  }
  // Rows per rank of the largest decode step that the device routes itself.
  std::int64_t most_listed_rows() const {
    return metro::ListedDecode::most_rows(*spec_, placement_, routing_, limits_).num_rows;
  }

 private:
  static metro::DecoderLimits limits_of(const Setting& setting) {
    return {.max_rows = 64,
            .max_decode_rows = most_sequences,
            .max_sampled_rows = most_sequences,
            .max_context = blocks_of_sequence * block_tokens,
            .kv_blocks = most_sequences * blocks_of_sequence,
            .block_tokens = block_tokens,
            .exchange_bytes = 1 << 20,
            .listed = setting.listed};
  }
  static metro::Placement placement_of(const metro::ModelSpec& spec, std::int64_t num_ranks, double replication) {
    return metro::place_eplb({}, spec.num_moe_layers(), spec.moe.num_experts, 1, 1, num_ranks,
                             metro::slots_for_replication(spec.moe.num_experts, num_ranks, replication));
  }

  void forward(bool decode) {
    const std::vector<std::int64_t> first = done_;
    std::vector<std::size_t> fed;
    for (std::size_t i = 0; i < done_.size(); ++i) {
      done_[i] = std::min(std::ssize(batch_.tokens(i)), done_[i] + chunk_);
      if (first[i] < done_[i]) {
        fed.push_back(i);
      }
    }
    const metro::RowBatch rows = batch_.rows(decode, first, done_);
    recorder_.begin_step(rows);
    const float* const logits = decoder_.forward(rows, &recorder_);
    for (std::size_t i = 0; i < fed.size(); ++i) {
      logits_[fed[i]] =
          metro::test::host_copy(logits + static_cast<std::int64_t>(i) * spec_->vocab_size, spec_->vocab_size);
    }
  }

  const metro::ModelSpec* spec_;
  std::int64_t chunk_;
  metro::DecoderLimits limits_;
  metro::Placement placement_;
  metro::RoutingSettings routing_;
  metro::Decoder decoder_;
  metro::test::SequenceBatch batch_;
  Recorder recorder_;
  std::vector<std::int64_t> done_;          // tokens of each sequence that went through
  std::vector<std::vector<float>> logits_;  // [sequences][vocab]
};

std::int32_t argmax(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Infinite if there are more of one than of the other.
double largest_difference(std::span<const float> computed, const json& expected) {
  double largest = computed.size() == expected.size() ? 0.0 : INFINITY;
  for (std::size_t i = 0; i < std::min(computed.size(), expected.size()); ++i) {
    const double difference = std::abs(static_cast<double>(computed[i]) - expected[i].get<double>());
    largest = difference <= largest ? largest : difference;  // also if it is NaN
  }
  return largest;
}

double length_of(std::span<const float> values) {
  double squares = 0.0;
  for (const float value : values) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(squares);
}

// The trace of the prompt that is `sequence` of this rank.
void check_trace(Run& run, const metro::ModelSpec& spec, std::size_t sequence, const json& trace) {
  std::int64_t moe_layer = 0;
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    CAPTURE(layer);
    const json& ids = trace.at("router_ids").at(layer);
    CHECK(ids.is_null() == (spec.layers[layer] == metro::LayerKind::dense));
    for (std::size_t position = 0; position < ids.size(); ++position) {
      const RowTrace& row = run.row(sequence, position);
      const json& weights = trace.at("router_weights").at(layer).at(position);
      CHECK(row.ids.at(moe_layer) == ids.at(position).get<std::vector<std::int32_t>>());
      CHECK(largest_difference(row.weights.at(moe_layer), weights) < weight_tolerance);
    }
    moe_layer += ids.is_null() ? 0 : 1;
  }
}

void check_hidden(Run& run, std::size_t sequence, std::size_t last, const json& expected) {
  for (std::size_t layer = 0; layer < expected.size(); ++layer) {
    CAPTURE(layer);
    const std::vector<float>& hidden = run.row(sequence, last).hidden.at(static_cast<std::int64_t>(layer));
    CHECK(largest_difference(std::span(hidden).first(8), expected.at(layer).at("first8")) < hidden_tolerance);
    CHECK(std::abs(length_of(hidden) - expected.at(layer).at("l2").get<double>()) < length_tolerance);
  }
}

}  // namespace

TEST_CASE("every model gives the logits, tokens, router choices and hidden states of transformers") {
  const auto transport = metro::make_mpi_transport(60.0);
  const auto exchange = metro::make_device_exchange(*transport);
  const std::vector<std::size_t> own = prompts_of(transport->rank());

  for (const std::string& name : metro::test::reference_models()) {
    const metro::test::ScratchCheckpoint file(metro::test::family_folder(name));
    metro::CheckpointReader checkpoint(file.path());
    const json reference = read_reference(metro::test::family_folder(name));
    const auto traced = reference.at("trace").at("prompt").get<std::size_t>();
    std::vector<std::vector<std::int32_t>> prompts;
    for (const std::size_t prompt : own) {
      prompts.push_back(reference.at("prompts").at(prompt).at("input_ids"));
    }
    for (const Setting& setting : settings()) {
      CAPTURE(name, metro::name_of(setting.policy), setting.replication, setting.chunk);
      Run run(checkpoint, *exchange, setting, prompts);
      CHECK(run.most_listed_rows() >= setting.listed.most_rows);

      run.prefill(std::ssize(reference.at("prompts").at(traced).at("input_ids")));

      for (std::size_t i = 0; i < own.size(); ++i) {
        CHECK(largest_difference(run.logits(i), reference.at("prompts").at(own[i]).at("logits_last")) <
              logit_tolerance);
        if (own[i] == traced) {
          check_trace(run, checkpoint.spec(), i, reference.at("trace"));
          check_hidden(run, i, prompts[i].size() - 1, reference.at("trace").at("hidden"));
        }
      }

      const std::size_t num_generated = reference.at("prompts").at(traced).at("generated").size();
      for (std::size_t step = 0; step < num_generated; ++step) {
        std::vector<std::int32_t> tokens;
        for (std::size_t i = 0; i < own.size(); ++i) {
          tokens.push_back(argmax(run.logits(i)));
          CHECK(tokens.back() == reference.at("prompts").at(own[i]).at("generated").at(step));
        }
        run.decode(tokens);
      }
    }
  }
}
