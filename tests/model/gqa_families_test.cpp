// What is special about Mixtral, Qwen2-MoE and OLMoE: their fields, their tensors, and what of them is refused.
#include "base/file.hpp"
#include "model/family.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using metro::ModelSpec;
using metro::QueryKeyNorm;
using metro::TensorSource;
using nlohmann::json;

namespace {

json read_json(const std::string& name) {
  return json::parse(metro::read_file(std::string(METRO_TEST_DATA) + "/" + name, metro::ExitCode::input));
}

// The config of a reference model with fields replaced; null counts as absent.
json config_of(const std::string& family, const json& changes = json::object()) {
  json config = read_json("families/" + family + "/config.json");
  config.update(changes);
  return config;
}

ModelSpec spec_of(const char* family, const json& changes = json::object()) {
  return metro::parse_model_spec(config_of(family, changes).dump(), std::nullopt);
}

void expect_refusal(const char* family, const json& changes, std::initializer_list<const char*> texts) {
  CAPTURE(family, changes);
  metro::test::expect_error(metro::ExitCode::checkpoint, texts, [&] { spec_of(family, changes); });
}

// As the newer generation of the format writes the same config.
json in_newer_names(json config) {
  config["rope_parameters"] = {{"rope_theta", config["rope_theta"]}, {"rope_type", "default"}};
  config["dtype"] = config["torch_dtype"];
  if (config.contains("num_experts")) {
    config["num_local_experts"] = config["num_experts"];
  }
  for (const char* published : {"rope_theta", "rope_scaling", "torch_dtype", "num_experts"}) {
    config.erase(published);
  }
  return config;
}

const TensorSource* find(const std::vector<TensorSource>& sources, const std::string& dataset) {
  const auto found =
      std::find_if(sources.begin(), sources.end(), [&](const auto& source) { return source.dataset == dataset; });
  return found == sources.end() ? nullptr : &*found;
}

// The one tensor that a dataset is made of, with its shape.
std::pair<std::string, std::vector<std::int64_t>> tensor_of(const std::vector<TensorSource>& sources,
                                                            const std::string& dataset) {
  const TensorSource* const source = find(sources, dataset);
  return source == nullptr || source->parts.size() != 1 ? std::pair<std::string, std::vector<std::int64_t>>{}
                                                        : std::pair{source->parts.front(), source->shape};
}

using Tensor = std::pair<std::string, std::vector<std::int64_t>>;

}  // namespace

TEST_CASE("both generations of field names give the same model of each family") {
  const char* const family = GENERATE("mixtral", "qwen2_moe", "olmoe");
  const ModelSpec published = spec_of(family);

  const ModelSpec newer = metro::parse_model_spec(in_newer_names(config_of(family)).dump(), std::nullopt);

  CHECK(newer.family == family);
  CHECK(newer.moe.num_experts == published.moe.num_experts);
  CHECK(newer.rope.theta == published.rope.theta);
  CHECK(newer.end_tokens == published.end_tokens);
}

TEST_CASE("published configs of Mixtral and Qwen1.5-MoE give the sizes of these models") {
  const auto published = [](const char* name, const json& more) {
    json config = read_json(std::string("models/") + name);
    config.update(more);
    return metro::parse_model_spec(config.dump(), std::nullopt);
  };
  const ModelSpec mixtral = published("mistralai--Mixtral-8x22B-v0.1_config.json", json::object());
  // Its main values are there; the others as its publisher has them.
  const ModelSpec qwen = published("Qwen--Qwen1.5-MoE-A2.7B_values.json",
                                   {{"rms_norm_eps", 1e-6}, {"rope_theta", 1e6}, {"max_position_embeddings", 8192}});

  CHECK(mixtral.num_moe_layers() == 56);
  CHECK(mixtral.attention.head_dim == 128);
  CHECK(mixtral.moe.intermediate_size == 16384);
  CHECK(qwen.num_moe_layers() == 24);
  CHECK(qwen.moe.num_experts == 60);
  CHECK(qwen.moe.shared_width == 5632);
  CHECK(qwen.attention.has_qkv_bias);
}

TEST_CASE("Mixtral renormalises always, has experts in every layer, and heads that share the hidden size") {
  const ModelSpec spec = spec_of("mixtral");

  CHECK(spec.moe.gate.normalise);
  CHECK(spec.moe.num_experts == 8);
  CHECK(spec.moe.top_k == 2);
  CHECK(spec.moe.intermediate_size == 34);
  CHECK(spec.num_moe_layers() == spec.num_layers);
  CHECK(spec.attention.head_dim == 14);
  CHECK(spec.attention.query_key_norm == QueryKeyNorm::none);
  CHECK(spec.norm_eps == 1e-5F);
  CHECK(spec_of("mixtral", {{"head_dim", 20}}).attention.head_dim == 20);
}

TEST_CASE("Mixtral's experts are w1, w3 and w2 of block_sparse_moe") {
  const auto sources = metro::tensor_sources(spec_of("mixtral"));

  const TensorSource* const gate_up = find(sources, "/layers/001/experts/gate_up");
  const TensorSource* const down = find(sources, "/layers/001/experts/down");

  REQUIRE(gate_up != nullptr);
  REQUIRE(down != nullptr);
  CHECK(gate_up->parts[4] == "model.layers.1.block_sparse_moe.experts.2.w1.weight");
  CHECK(gate_up->parts[5] == "model.layers.1.block_sparse_moe.experts.2.w3.weight");
  CHECK(down->parts[2] == "model.layers.1.block_sparse_moe.experts.2.w2.weight");
  CHECK(tensor_of(sources, "/layers/001/gate") == Tensor{"model.layers.1.block_sparse_moe.gate.weight", {8, 84}});
  CHECK(find(sources, "/layers/001/attention/q_norm") == nullptr);
}

TEST_CASE("a sliding window of Mixtral may only be one that no sequence outgrows") {
  CHECK(spec_of("mixtral", {{"sliding_window", 512}}).attention.windows.empty());
  expect_refusal("mixtral", {{"sliding_window", 511}},
                 {"sliding_window = 511", "not supported", "at least max_position_embeddings = 512"});
  expect_refusal("mixtral", {{"sliding_window", "all"}}, {"sliding_window = \"all\" must be an integer"});
}

TEST_CASE("what Mixtral does not have is refused") {
  expect_refusal("mixtral", {{"hidden_act", "gelu"}}, {"hidden_act = \"gelu\"", "\"silu\""});
  expect_refusal("mixtral", {{"attention_bias", true}}, {"attention_bias = true"});
  expect_refusal("mixtral", {{"norm_topk_prob", false}}, {"norm_topk_prob = false", "true"});
  expect_refusal("mixtral", {{"intermediate_size", nullptr}}, {"intermediate_size is missing"});
}

TEST_CASE("Qwen2-MoE has a gated shared expert beside the experts") {
  const ModelSpec spec = spec_of("qwen2_moe");
  const auto sources = metro::tensor_sources(spec);

  CHECK(spec.moe.shared_width == 52);
  CHECK(spec.moe.shared_is_gated);
  CHECK(spec.moe.intermediate_size == 36);
  CHECK_FALSE(spec.moe.gate.normalise);
  const TensorSource* const gate_up = find(sources, "/layers/000/shared/gate_up");
  REQUIRE(gate_up != nullptr);
  CHECK(gate_up->shape == std::vector<std::int64_t>{104, 72});
  CHECK(gate_up->parts == std::vector<std::string>{"model.layers.0.mlp.shared_expert.gate_proj.weight",
                                                   "model.layers.0.mlp.shared_expert.up_proj.weight"});
  CHECK(gate_up->may_be_quantised);
  CHECK_FALSE(gate_up->per_expert);
  CHECK(tensor_of(sources, "/layers/000/shared/down") ==
        Tensor{"model.layers.0.mlp.shared_expert.down_proj.weight", {72, 52}});
  CHECK(tensor_of(sources, "/layers/000/shared/gate") ==
        Tensor{"model.layers.0.mlp.shared_expert_gate.weight", {1, 72}});
  CHECK_FALSE(find(sources, "/layers/000/shared/gate")->may_be_quantised);
}

TEST_CASE("Qwen2-MoE has biases of queries, keys and values unless its config says otherwise") {
  const auto sources = metro::tensor_sources(spec_of("qwen2_moe"));
  const auto without = metro::tensor_sources(spec_of("qwen2_moe", {{"qkv_bias", false}}));

  CHECK(tensor_of(sources, "/layers/001/attention/q_bias") == Tensor{"model.layers.1.self_attn.q_proj.bias", {72}});
  CHECK(tensor_of(sources, "/layers/001/attention/k_bias") == Tensor{"model.layers.1.self_attn.k_proj.bias", {36}});
  CHECK(tensor_of(sources, "/layers/001/attention/v_bias") == Tensor{"model.layers.1.self_attn.v_proj.bias", {36}});
  CHECK(find(sources, "/layers/001/attention/o_bias") == nullptr);
  CHECK(find(without, "/layers/001/attention/q_bias") == nullptr);
  CHECK(find(without, "/layers/001/attention/v_bias") == nullptr);
}

TEST_CASE("layers of Qwen2-MoE without experts have neither router nor shared expert") {
  const ModelSpec spec = spec_of("qwen2_moe", {{"mlp_only_layers", {0}}});
  const auto sources = metro::tensor_sources(spec);

  CHECK(spec.layers == std::vector{metro::LayerKind::dense, metro::LayerKind::moe});
  CHECK(spec.dense_intermediate_size == 100);
  CHECK(find(sources, "/layers/000/dense/gate_up") != nullptr);
  CHECK(find(sources, "/layers/000/gate") == nullptr);
  CHECK(find(sources, "/layers/000/shared/gate_up") == nullptr);
  CHECK(find(sources, "/layers/001/shared/gate_up") != nullptr);
  CHECK(spec_of("qwen2_moe", {{"decoder_sparse_step", 2}}).layers == spec.layers);
}

TEST_CASE("what Qwen2-MoE does not have is refused") {
  expect_refusal("qwen2_moe", {{"use_sliding_window", true}}, {"use_sliding_window = true", "false"});
  expect_refusal("qwen2_moe", {{"hidden_act", "relu"}}, {"hidden_act = \"relu\""});
  expect_refusal("qwen2_moe", {{"qkv_bias", "no"}}, {"qkv_bias = \"no\" must be true or false"});
  expect_refusal("qwen2_moe", {{"shared_expert_intermediate_size", nullptr}},
                 {"shared_expert_intermediate_size is missing"});
  expect_refusal("qwen2_moe", {{"shared_expert_intermediate_size", 0}}, {"shared_expert_intermediate_size = 0"});
}

TEST_CASE("OLMoE's norms of queries and keys span all heads, and its clip may be absent") {
  const ModelSpec spec = spec_of("olmoe", {{"num_key_value_heads", 1}});
  const auto sources = metro::tensor_sources(spec);

  CHECK(spec.attention.query_key_norm == QueryKeyNorm::full_width);
  CHECK(spec.attention.clip == 0.0F);
  CHECK(spec.moe.intermediate_size == 34);
  CHECK_FALSE(spec.moe.gate.normalise);
  CHECK(tensor_of(sources, "/layers/001/attention/q_norm") == Tensor{"model.layers.1.self_attn.q_norm.weight", {80}});
  CHECK(tensor_of(sources, "/layers/001/attention/k_norm") == Tensor{"model.layers.1.self_attn.k_norm.weight", {16}});
  CHECK(spec_of("olmoe", {{"clip_qkv", 8}}).attention.clip == 8.0F);
}

TEST_CASE("OLMoE's norms are as Hugging Face assumes where its config says nothing") {
  CHECK(spec_of("olmoe", {{"rms_norm_eps", nullptr}}).norm_eps == 1e-5F);
  CHECK_FALSE(spec_of("olmoe", {{"norm_topk_prob", nullptr}}).moe.gate.normalise);
}

TEST_CASE("what OLMoE does not have is refused") {
  expect_refusal("olmoe", {{"attention_bias", true}}, {"attention_bias = true"});
  expect_refusal("olmoe", {{"hidden_act", "gelu"}}, {"hidden_act = \"gelu\""});
  expect_refusal("olmoe", {{"clip_qkv", 0}}, {"clip_qkv = 0 must be a positive number"});
  expect_refusal("olmoe", {{"clip_qkv", 1e-60}}, {"clip_qkv = 1e-60 must be a positive number that float32 can hold"});
}
