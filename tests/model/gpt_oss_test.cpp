// What a gpt-oss model is by its config.json, of both generations, and the tensors it is made of.
#include "model/family.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

using metro::ExitCode;
using metro::ModelSpec;
using metro::parse_model_spec;
using metro::TensorSource;
using metro::test::expect_error;
using nlohmann::json;

namespace {

// Five layers, with the values of the published models where sizes are not concerned.
json config() {
  return {{"model_type", "gpt_oss"},
          {"hidden_act", "silu"},
          {"attention_bias", true},
          {"num_hidden_layers", 5},
          {"hidden_size", 48},
          {"vocab_size", 100},
          {"intermediate_size", 40},
          {"max_position_embeddings", 131072},
          {"initial_context_length", 4096},
          {"rms_norm_eps", 1e-5},
          {"num_attention_heads", 6},
          {"num_key_value_heads", 2},
          {"head_dim", 10},
          {"num_local_experts", 7},
          {"num_experts_per_tok", 4},
          {"experts_per_token", 4},
          {"sliding_window", 128},
          {"swiglu_limit", 7.0},
          {"rope_theta", 150000},
          {"rope_scaling",
           {{"rope_type", "yarn"},
            {"factor", 32.0},
            {"beta_fast", 32.0},
            {"beta_slow", 1.0},
            {"original_max_position_embeddings", 4096},
            {"truncate", false}}},
          {"tie_word_embeddings", false}};
}

std::string config_with(const char* field, const json& value) {
  json changed = config();
  changed[field] = value;
  return changed.dump();
}

std::string config_without(std::initializer_list<const char*> fields) {
  json changed = config();
  for (const char* field : fields) {
    changed.erase(field);
  }
  return changed.dump();
}

ModelSpec spec_of(const std::string& text) {
  return parse_model_spec(text, std::nullopt);
}

void expect_refusal(const std::string& text, std::initializer_list<const char*> texts) {
  CAPTURE(text);
  expect_error(ExitCode::checkpoint, texts, [&] { spec_of(text); });
}

const TensorSource& find(const std::vector<TensorSource>& sources, const std::string& dataset) {
  const auto found =
      std::find_if(sources.begin(), sources.end(), [&](const auto& source) { return source.dataset == dataset; });
  REQUIRE(found != sources.end());
  return *found;
}

using Windows = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a gpt-oss config says what is special about its attention, router and experts") {
  const ModelSpec spec = spec_of(config().dump());

  CHECK(spec.num_moe_layers() == 5);
  CHECK(spec.attention.has_sinks);
  CHECK(spec.attention.score_scale == Approx(std::pow(10.0, -0.5)));
  CHECK(spec.moe.num_experts == 7);
  CHECK(spec.moe.top_k == 4);
  CHECK(spec.moe.intermediate_size == 40);
  CHECK(spec.moe.gate.kind == metro::GateKind::chosen_softmax);
  CHECK(spec.moe.activation == metro::Activation{metro::ActivationKind::clamped_swiglu, 7.0F});
  CHECK(spec.rope.sets.at(0).scale == Approx(0.1 * std::log(32.0) + 1.0));
}

TEST_CASE("the layers of gpt-oss that slide are those that layer_types names, else the even ones") {
  const json types = {"full_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"};
  json none_slides = config();
  none_slides["layer_types"] = json(std::vector<std::string>(5, "full_attention"));
  none_slides.erase("sliding_window");

  CHECK(spec_of(config().dump()).attention.windows == Windows{128, 0, 128, 0, 128});
  CHECK(spec_of(config_with("layer_types", nullptr)).attention.windows == Windows{128, 0, 128, 0, 128});
  CHECK(spec_of(config_with("layer_types", types)).attention.windows == Windows{0, 0, 128, 0, 128});
  CHECK(spec_of(none_slides.dump()).attention.windows == Windows{0, 0, 0, 0, 0});
}

TEST_CASE("a gpt-oss config of the newer generation gives the same model") {
  json newer = config();
  newer["rope_parameters"] = newer["rope_scaling"];
  newer["rope_parameters"]["rope_theta"] = newer["rope_theta"];
  newer["num_experts"] = newer["num_local_experts"];
  for (const char* field : {"rope_scaling", "rope_theta", "num_local_experts", "experts_per_token", "swiglu_limit"}) {
    newer.erase(field);
  }

  const ModelSpec spec = spec_of(newer.dump());

  const ModelSpec expected = spec_of(config().dump());
  CHECK(spec.rope.sets.at(0).inverse_frequencies == expected.rope.sets.at(0).inverse_frequencies);
  CHECK(spec.rope.sets.at(0).scale == expected.rope.sets.at(0).scale);
  CHECK(spec.moe.num_experts == 7);
  CHECK(spec.moe.activation == expected.moe.activation);
  CHECK(spec_of(config_without({"num_experts_per_tok"})).moe.top_k == 4);
}

TEST_CASE("a gpt-oss config that cannot be run exactly is refused by field and value") {
  expect_refusal(config_with("layer_types", {"full_attention", "chunked_attention", "full_attention", "full_attention",
                                             "full_attention"}),
                 {"layer_types = ", "has \"chunked_attention\"", "allowed: sliding_attention, full_attention"});
  expect_refusal(config_with("layer_types", {"full_attention"}), {"layer_types = ", "num_hidden_layers = 5"});
  expect_refusal(config_with("layer_types", json::array()), {"layer_types = []", "num_hidden_layers = 5"});
  expect_refusal(config_with("layer_types", "full_attention"), {"layer_types = \"full_attention\"", "list of strings"});
  expect_refusal(config_with("layer_types", {1, 2, 3, 4, 5}), {"layer_types = [1,2,3,4,5]", "list of strings"});
  expect_refusal(config_with("sliding_window", 0), {"sliding_window = 0", "from 1 to"});
  expect_refusal(config_without({"sliding_window"}), {"sliding_window is missing"});
  expect_refusal(config_with("swiglu_limit", -1.0), {"swiglu_limit = -1.0", "positive number"});
  expect_refusal(config_with("attention_bias", false), {"attention_bias = false", "allowed: absent or null, true"});
  expect_refusal(config_with("hidden_act", "gelu"), {"hidden_act = \"gelu\""});
  expect_refusal(config_with("experts_per_token", 2), {"experts_per_token = 2", "contradicts num_experts_per_tok = 4"});
  expect_refusal(config_without({"rope_scaling"}), {"rope_scaling = null", "must be given, or rope_parameters"});
}

TEST_CASE("the experts of a gpt-oss layer come from fused tensors, transposed, gate and up in turns") {
  const auto sources = metro::tensor_sources(spec_of(config().dump()));

  const TensorSource& gate_up = find(sources, "/layers/003/experts/gate_up");
  CHECK(gate_up.shape == std::vector<std::int64_t>{7, 80, 48});
  CHECK(metro::part_shape(gate_up) == std::vector<std::int64_t>{7, 48, 80});
  CHECK(gate_up.parts == std::vector<std::string>{"model.layers.3.mlp.experts.gate_up_proj"});
  CHECK((gate_up.order.is_transposed && gate_up.order.is_interleaved && gate_up.may_be_quantised));
  const TensorSource& gate_up_bias = find(sources, "/layers/003/experts/gate_up_bias");
  CHECK(metro::part_shape(gate_up_bias) == std::vector<std::int64_t>{7, 80});
  CHECK(gate_up_bias.parts == std::vector<std::string>{"model.layers.3.mlp.experts.gate_up_proj_bias"});
  CHECK((!gate_up_bias.order.is_transposed && gate_up_bias.order.is_interleaved && !gate_up_bias.may_be_quantised));
  const TensorSource& down = find(sources, "/layers/003/experts/down");
  CHECK(metro::part_shape(down) == std::vector<std::int64_t>{7, 40, 48});
  CHECK(down.parts == std::vector<std::string>{"model.layers.3.mlp.experts.down_proj"});
  CHECK((down.order.is_transposed && !down.order.is_interleaved && down.may_be_quantised));
  const TensorSource& down_bias = find(sources, "/layers/003/experts/down_bias");
  CHECK(metro::part_shape(down_bias) == std::vector<std::int64_t>{7, 48});
  CHECK((!down_bias.order.is_transposed && !down_bias.order.is_interleaved && !down_bias.may_be_quantised));
}

TEST_CASE("all linear layers of gpt-oss but the head have a bias, and heads have sinks") {
  const auto sources = metro::tensor_sources(spec_of(config().dump()));

  CHECK(find(sources, "/layers/004/attention/q_bias").shape == std::vector<std::int64_t>{60});
  CHECK(find(sources, "/layers/004/attention/k_bias").shape == std::vector<std::int64_t>{20});
  CHECK(find(sources, "/layers/004/attention/v_bias").parts.at(0) == "model.layers.4.self_attn.v_proj.bias");
  CHECK(find(sources, "/layers/004/attention/o_bias").shape == std::vector<std::int64_t>{48});
  CHECK(find(sources, "/layers/004/attention/sinks").parts.at(0) == "model.layers.4.self_attn.sinks");
  CHECK(find(sources, "/layers/004/attention/sinks").shape == std::vector<std::int64_t>{6});
  CHECK(find(sources, "/layers/004/gate").parts.at(0) == "model.layers.4.mlp.router.weight");
  CHECK(find(sources, "/layers/004/gate_bias").parts.at(0) == "model.layers.4.mlp.router.bias");
  CHECK(sources.size() == 3 + 5 * 17);
}
