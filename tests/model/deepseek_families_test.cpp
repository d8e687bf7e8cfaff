// The DeepSeek families: published configs as specs, tensors of the tiny models, refusals.
#include "base/file.hpp"
#include "base/integers.hpp"
#include "model/family.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using metro::ExitCode;
using metro::GateKind;
using metro::LayerKind;
using metro::ModelSpec;
using metro::parse_model_spec;
using metro::test::expect_error;
using nlohmann::json;

namespace {

json read_config(const std::string& path) {
  return json::parse(metro::read_file(std::string(METRO_TEST_DATA) + "/" + path, ExitCode::input));
}

// How weights are stored is not what is tested here.
json published(const std::string& name) {
  json config = read_config("models/" + name + "_config.json");
  config.erase("quantization_config");
  return config;
}

json tiny(const std::string& name) {
  return read_config("families/" + name + "/config.json");
}

ModelSpec spec_of(const json& config) {
  return parse_model_spec(config.dump(), std::nullopt);
}

void expect_refusal(json config, const char* field, const json& value, std::initializer_list<const char*> texts) {
  CAPTURE(field);
  config[field] = value;
  expect_error(ExitCode::checkpoint, texts, [&] { spec_of(config); });
}

}  // namespace

TEST_CASE("DeepSeek-V3, R1 and Kimi-K2 are read as published") {
  for (const char* name : {"deepseek-ai--DeepSeek-V3", "deepseek-ai--DeepSeek-R1", "moonshotai--Kimi-K2-Instruct"}) {
    CAPTURE(name);
    const bool is_kimi = std::string(name).starts_with("moonshot");

    const ModelSpec spec = spec_of(published(name));

    CHECK(spec.num_layers == 61);
    CHECK(std::count(spec.layers.begin(), spec.layers.end(), LayerKind::dense) == (is_kimi ? 1 : 3));
    CHECK(spec.layers.back() == LayerKind::moe);
    CHECK(spec.dense_intermediate_size == 18432);
    CHECK(spec.attention.num_heads == (is_kimi ? 64 : 128));
    CHECK(spec.attention.head_dim == 192);
    REQUIRE(spec.attention.latent.has_value());
    CHECK(spec.attention.latent->query_rank == 1536);
    CHECK(spec.cached_values() == 512 + 64);
    CHECK(spec.attended_width() == spec.attention.num_heads * 128);
    CHECK(spec.moe.num_experts == (is_kimi ? 384 : 256));
    CHECK(spec.moe.top_k == 8);
    CHECK(spec.moe.shared_width == 2048);
    CHECK(!spec.moe.shared_is_gated);
    CHECK(spec.moe.gate.kind == GateKind::sigmoid);
    CHECK(spec.moe.gate.normalise);
    CHECK(spec.moe.gate.scale == (is_kimi ? 2.827F : 2.5F));
    CHECK(spec.moe.gate.num_groups == (is_kimi ? 1 : 8));
    CHECK(spec.moe.gate.num_kept_groups == (is_kimi ? 1 : 4));
    CHECK(spec.moe.gate.best_of_group == 2);
    CHECK(spec.moe.gate.has_correction);
    // 192^-0.5 * (0.1 ln factor + 1)^2
    const double mscale = 0.1 * std::log(is_kimi ? 32.0 : 40.0) + 1.0;
    CHECK(static_cast<double>(spec.attention.score_scale) == Approx(mscale * mscale / std::sqrt(192.0)));
    CHECK(spec.rope.pairs == metro::RopePairs::neighbours);
    CHECK(spec.rope.sets.at(0).scale == 1.0F);
  }
}

TEST_CASE("DeepSeek-MoE is read as published") {
  const ModelSpec spec = spec_of(published("deepseek-ai--deepseek-moe-16b"));

  CHECK(!spec.attention.latent.has_value());
  CHECK(spec.attention.head_dim == 128);
  CHECK(spec.cached_values() == 2 * 16 * 128);
  CHECK(spec.layers.front() == LayerKind::dense);
  CHECK(spec.num_moe_layers() == 27);
  CHECK(spec.moe.num_experts == 64);
  CHECK(spec.moe.top_k == 6);
  CHECK(spec.moe.shared_width == 2 * 1408);
  CHECK(spec.moe.gate.kind == GateKind::softmax);
  CHECK(!spec.moe.gate.normalise);
  CHECK(spec.moe.gate.num_groups == 1);
}

TEST_CASE("DeepSeek-V2 chooses greedily or among groups by their best expert") {
  json config = tiny("deepseek_v2_lite");
  const ModelSpec lite = spec_of(config);
  config["topk_method"] = "group_limited_greedy";
  config["n_group"] = 3;
  config["topk_group"] = 2;

  const ModelSpec grouped = spec_of(config);

  CHECK(lite.attention.latent->query_rank == 0);
  CHECK(lite.moe.gate.num_groups == 1);
  CHECK(!lite.moe.gate.normalise);
  CHECK(!lite.moe.gate.has_correction);
  CHECK(lite.moe.gate.scale == 1.3F);
  CHECK(grouped.moe.gate.num_groups == 3);
  CHECK(grouped.moe.gate.num_kept_groups == 2);
  CHECK(grouped.moe.gate.best_of_group == 1);
}

TEST_CASE("tensors of latent attention are named as published, and kv_b stays as it is stored") {
  const auto sources = metro::tensor_sources(spec_of(tiny("deepseek_v3")));
  const auto find = [&](const std::string& dataset) {
    return std::find_if(sources.begin(), sources.end(), [&](const auto& source) { return source.dataset == dataset; });
  };

  const auto kv_b = find("/layers/002/attention/kv_b");
  REQUIRE(kv_b != sources.end());
  CHECK(kv_b->shape == std::vector<std::int64_t>{3 * (14 + 18), 36});
  CHECK(kv_b->parts == std::vector<std::string>{"model.layers.2.self_attn.kv_b_proj.weight"});
  CHECK(!kv_b->may_be_quantised);
  const auto correction = find("/layers/001/gate_correction");
  REQUIRE(correction != sources.end());
  CHECK(correction->parts == std::vector<std::string>{"model.layers.1.mlp.gate.e_score_correction_bias"});
  CHECK(find("/layers/000/gate_correction") == sources.end());
  CHECK(find("/layers/001/attention/q_a") != sources.end());
  const auto lite = metro::tensor_sources(spec_of(tiny("deepseek_v2_lite")));
  CHECK(std::none_of(lite.begin(), lite.end(), [](const auto& source) { return source.dataset.ends_with("/q_a"); }));
}

TEST_CASE("latents and rotated keys may have scales where no block of scales is of both") {
  const auto may_be_quantised = [](std::int64_t kv_rank) {
    json config = tiny("deepseek_v3");
    config["kv_lora_rank"] = kv_rank;
    const auto sources = metro::tensor_sources(spec_of(config));
    const auto kv_a = std::find_if(sources.begin(), sources.end(),
                                   [](const auto& source) { return source.dataset == "/layers/002/attention/kv_a"; });
    REQUIRE(kv_a != sources.end());
    return kv_a->may_be_quantised;
  };

  CHECK(may_be_quantised(128));
  CHECK(may_be_quantised(512));
  CHECK(!may_be_quantised(100));
  CHECK(!may_be_quantised(192));
}

TEST_CASE("what would change the maths of a DeepSeek model is refused by name") {
  const json v3 = tiny("deepseek_v3");
  const json v2 = tiny("deepseek_v2_lite");
  expect_refusal(v3, "scoring_func", "softmax", {"scoring_func = \"softmax\"", "not supported", "sigmoid"});
  expect_refusal(v3, "topk_method", "greedy", {"topk_method = \"greedy\"", "noaux_tc"});
  expect_refusal(v2, "scoring_func", "sigmoid", {"scoring_func = \"sigmoid\"", "softmax"});
  expect_refusal(v2, "topk_method", "noaux_tc", {"topk_method = \"noaux_tc\"", "greedy", "group_limited_greedy"});
  expect_refusal(v2, "norm_topk_prob", true, {"norm_topk_prob = true", "false"});
  expect_refusal(v3, "moe_layer_freq", 2, {"moe_layer_freq = 2"});
  expect_refusal(v3, "attention_bias", true, {"attention_bias = true"});
  expect_refusal(v3, "rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}, {"rope_scaling.type = \"dynamic\""});
  expect_refusal(v3, "rope_interleave", false, {"rope_interleave = false"});
}

TEST_CASE("fields of DeepSeek-V3 whose absence has no one meaning must be there") {
  for (const char* field :
       {"routed_scaling_factor", "n_group", "topk_group", "first_k_dense_replace", "n_shared_experts"}) {
    const std::string complaint = std::string("config.json: ") + field + " is missing";
    expect_refusal(tiny("deepseek_v3"), field, nullptr, {complaint.c_str()});
  }
}

TEST_CASE("scales of a DeepSeek model that float32 cannot hold are refused") {
  const json v3 = tiny("deepseek_v3");
  expect_refusal(v3, "routed_scaling_factor", 1e300, {"routed_scaling_factor = 1e+300", "float32"});
  const json yarn = {{"type", "yarn"}, {"factor", 40.0}, {"original_max_position_embeddings", 64}};
  json scaled = yarn;
  scaled["mscale_all_dim"] = 1e30;
  expect_refusal(v3, "rope_scaling", scaled, {"rope_scaling = ", "scores", "mscale_all_dim"});
  scaled = yarn;
  scaled["attention_factor"] = 1e-300;
  expect_refusal(v3, "rope_scaling", scaled, {"rope_scaling.attention_factor = 1e-300", "float32"});
}

TEST_CASE("sizes of a DeepSeek model that do not fit each other are refused") {
  const json v3 = tiny("deepseek_v3");
  expect_refusal(v3, "n_group", 5, {"n_group = 5", "must divide the 12 experts"});
  expect_refusal(v3, "n_group", 12, {"n_group = 12", "groups of at least 2"});
  expect_refusal(v3, "topk_group", 4, {"topk_group = 4"});
  expect_refusal(v3, "num_experts_per_tok", 9, {"topk_group = 2", "fewer than num_experts_per_tok = 9"});
  expect_refusal(v3, "num_key_value_heads", 1, {"num_key_value_heads = 1", "must be num_attention_heads = 3"});
  expect_refusal(v3, "qk_rope_head_dim", 7, {"qk_rope_head_dim = 7", "even"});
  expect_refusal(v3, "first_k_dense_replace", 3, {"first_k_dense_replace = 3", "no layer with experts"});
  for (const char* field :
       {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "moe_intermediate_size"}) {
    expect_refusal(v3, field, nullptr, {field, "is missing"});
  }
}
