// What a ModelSpec says for configs of both generations of field names, and the tensors a model is made of.
#include "model/family.hpp"
#include "base/file.hpp"
#include "checkpoint/layout.hpp"
#include "model/config_text.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

using metro::LayerKind;
using metro::ModelSpec;
using metro::parse_model_spec;
using metro::TensorSource;
using metro::test::config_with;
using metro::test::config_without;
using metro::test::small_config;

namespace {

ModelSpec spec_of_file(const std::string& path) {
  return parse_model_spec(metro::read_file(path, metro::ExitCode::input), std::nullopt);
}

const TensorSource& find(const std::vector<TensorSource>& sources, const std::string& dataset) {
  const auto found =
      std::find_if(sources.begin(), sources.end(), [&](const auto& source) { return source.dataset == dataset; });
  REQUIRE(found != sources.end());
  return *found;
}

}  // namespace

TEST_CASE("the config of the embedded checkpoint gives its sizes") {
  const ModelSpec spec = spec_of_file(METRO_SOURCE_DIR "/inputs/models/tiny/config.json");

  CHECK(spec.family == "qwen3_moe");
  CHECK(spec.num_layers == 6);
  CHECK(spec.num_moe_layers() == 6);
  CHECK(spec.hidden_size == 128);
  CHECK(spec.vocab_size == 2048);
  CHECK(spec.max_positions == 2048);
  CHECK(spec.norm_eps == 1e-6F);
  CHECK(spec.attention.num_heads == 4);
  CHECK(spec.attention.num_kv_heads == 2);
  CHECK(spec.attention.head_dim == 32);
  CHECK(spec.attention.query_key_norm == metro::QueryKeyNorm::per_head);
  CHECK(spec.query_width() == 128);
  CHECK(spec.kv_width() == 64);
  CHECK(spec.rope.theta == 10000.0);
  CHECK(spec.dense_intermediate_size == 256);
  CHECK(spec.moe.num_experts == 32);
  CHECK(spec.moe.top_k == 4);
  CHECK(spec.moe.intermediate_size == 64);
  CHECK(spec.moe.gate.normalise);
  CHECK(spec.moe.gate.num_groups == 1);
  CHECK_FALSE(spec.tied_embeddings);
  CHECK(spec.end_tokens == std::vector<std::int32_t>{2045});
}

TEST_CASE("a layer has experts unless it is listed as dense or skipped by the sparse step") {
  const ModelSpec mixed = spec_of_file(METRO_TEST_DATA "/families/qwen3_moe_mixed/config.json");
  const ModelSpec listed = parse_model_spec(small_config().dump(), std::nullopt);

  const auto dense = LayerKind::dense;
  const auto moe = LayerKind::moe;
  CHECK(mixed.layers == std::vector{dense, moe, dense, moe});
  CHECK(listed.layers == std::vector{dense, dense, dense, moe, dense});
  CHECK(mixed.num_moe_layers() == 2);
  CHECK_FALSE(mixed.moe.gate.normalise);
  CHECK(mixed.tied_embeddings);
}

TEST_CASE("the newer field names give the same model as the published ones") {
  auto newer = small_config();
  newer["num_local_experts"] = newer["num_experts"];
  newer["rope_parameters"] = {{"rope_theta", 5000.0}, {"rope_type", "default"}};
  newer["dtype"] = "bfloat16";
  for (const char* published : {"num_experts", "rope_theta", "rope_scaling"}) {
    newer.erase(published);
  }

  const ModelSpec spec = parse_model_spec(newer.dump(), std::nullopt);

  CHECK(spec.moe.num_experts == 7);
  CHECK(spec.rope.theta == 5000.0);
}

TEST_CASE("both names of a field may be given when they agree") {
  CHECK(parse_model_spec(config_with("num_local_experts", 7), std::nullopt).moe.num_experts == 7);
  CHECK(parse_model_spec(config_with("rope_parameters", {{"rope_theta", 5000}}), std::nullopt).rope.theta == 5000.0);
}

TEST_CASE("rope scaling of kind default is no scaling") {
  CHECK(parse_model_spec(config_with("rope_scaling", {{"type", "default"}}), std::nullopt).rope.theta == 5000.0);
}

TEST_CASE("the head size defaults to the hidden size shared by the heads") {
  CHECK(parse_model_spec(config_without("head_dim"), std::nullopt).attention.head_dim == 8);
}

TEST_CASE("optional fields default as in Hugging Face") {
  auto config = small_config();
  for (const char* field : {"hidden_act", "attention_bias", "use_sliding_window", "mlp_only_layers",
                            "decoder_sparse_step", "tie_word_embeddings", "num_key_value_heads", "intermediate_size"}) {
    config.erase(field);
  }

  const ModelSpec spec = parse_model_spec(config.dump(), std::nullopt);

  CHECK(spec.num_moe_layers() == 5);
  CHECK_FALSE(spec.tied_embeddings);
  CHECK(spec.attention.num_kv_heads == 6);
  CHECK(spec.dense_intermediate_size == 0);
}

TEST_CASE("end tokens are an integer, a list or nothing, and generation_config.json wins") {
  using Tokens = std::vector<std::int32_t>;
  const auto tokens = [](const std::string& config, std::optional<std::string_view> generation) {
    return parse_model_spec(config, generation).end_tokens;
  };

  CHECK(tokens(config_with("eos_token_id", 9), std::nullopt) == Tokens{9});
  CHECK(tokens(config_with("eos_token_id", {4, 9, 4}), std::nullopt) == Tokens{4, 9});
  CHECK(tokens(config_with("eos_token_id", nullptr), std::nullopt).empty());
  CHECK(tokens(config_with("eos_token_id", 9), R"({"eos_token_id": [1, 2]})") == Tokens{1, 2});
  CHECK(tokens(config_with("eos_token_id", 9), R"({"eos_token_id": 3})") == Tokens{3});
  CHECK(tokens(config_with("eos_token_id", 9), R"({"eos_token_id": null})") == Tokens{9});
  CHECK(tokens(config_with("eos_token_id", 9), R"({"temperature": 0.6})") == Tokens{9});
}

TEST_CASE("expert datasets stack gate and up of each expert in turn") {
  const auto sources = metro::tensor_sources(parse_model_spec(small_config().dump(), std::nullopt));

  const TensorSource& gate_up = find(sources, "/layers/003/experts/gate_up");
  const TensorSource& down = find(sources, "/layers/003/experts/down");

  CHECK(gate_up.per_expert);
  CHECK(gate_up.shape == std::vector<std::int64_t>{7, 24, 48});
  CHECK(gate_up.parts.size() == 14);
  CHECK(gate_up.parts[2] == "model.layers.3.mlp.experts.1.gate_proj.weight");
  CHECK(gate_up.parts[3] == "model.layers.3.mlp.experts.1.up_proj.weight");
  CHECK(metro::part_shape(gate_up) == std::vector<std::int64_t>{12, 48});
  CHECK(down.shape == std::vector<std::int64_t>{7, 48, 12});
  CHECK(down.parts[6] == "model.layers.3.mlp.experts.6.down_proj.weight");
  CHECK(metro::part_shape(down) == std::vector<std::int64_t>{48, 12});
}

TEST_CASE("dense layers, attention and the tied head name the tensors of Hugging Face") {
  const auto sources = metro::tensor_sources(parse_model_spec(small_config().dump(), std::nullopt));

  const TensorSource& dense = find(sources, "/layers/000/dense/gate_up");
  CHECK_FALSE(dense.per_expert);
  CHECK(dense.shape == std::vector<std::int64_t>{80, 48});
  CHECK(metro::part_shape(dense) == std::vector<std::int64_t>{40, 48});
  CHECK(dense.parts ==
        std::vector<std::string>{"model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"});
  CHECK(find(sources, "/layers/004/attention/o").shape == std::vector<std::int64_t>{48, 60});
  CHECK(find(sources, "/layers/004/attention/k").parts.front() == "model.layers.4.self_attn.k_proj.weight");
  CHECK(find(sources, "/layers/004/attention/q_norm").shape == std::vector<std::int64_t>{10});
  CHECK(std::none_of(sources.begin(), sources.end(), [](const auto& source) { return source.dataset == "/lm_head"; }));

  const auto untied = metro::tensor_sources(parse_model_spec(config_with("tie_word_embeddings", false), std::nullopt));
  CHECK(find(untied, "/lm_head").parts == std::vector<std::string>{"lm_head.weight"});
}

TEST_CASE("no dataset and no tensor is listed twice") {
  const auto sources = metro::tensor_sources(spec_of_file(METRO_TEST_DATA "/families/qwen3_moe_mixed/config.json"));

  std::set<std::string> datasets;
  std::set<std::string> parts;
  std::size_t num_parts = 0;
  for (const TensorSource& source : sources) {
    datasets.insert(source.dataset);
    parts.insert(source.parts.begin(), source.parts.end());
    num_parts += source.parts.size();
  }

  CHECK(datasets.size() == sources.size());
  CHECK(parts.size() == num_parts);
}
