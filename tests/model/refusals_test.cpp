// Every config that cannot be run exactly is refused, by the name of the field and its value.
#include "model/config_text.hpp"
#include "model/family.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

using metro::ExitCode;
using metro::parse_model_spec;
using metro::test::config_with;
using metro::test::config_without;
using metro::test::expect_error;
using nlohmann::json;

namespace {

void expect_refusal(const std::string& config, std::initializer_list<const char*> texts) {
  CAPTURE(config);
  expect_error(ExitCode::checkpoint, texts, [&] { parse_model_spec(config, std::nullopt); });
}

}  // namespace

TEST_CASE("a field that would change the maths is refused with its value") {
  expect_refusal(config_with("attention_bias", true), {"config.json", "attention_bias = true", "allowed", "false"});
  expect_refusal(config_with("hidden_act", "gelu"), {"hidden_act = \"gelu\"", "\"silu\""});
  expect_refusal(config_with("use_sliding_window", true), {"use_sliding_window = true"});
  expect_refusal(config_with("partial_rotary_factor", 0.5), {"partial_rotary_factor = 0.5"});
}

TEST_CASE("weights that were made smaller in another way than those that can be read are refused by field") {
  const auto refuse = [](const json& changes, std::initializer_list<const char*> texts) {
    json quantization = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    quantization.update(changes);
    expect_refusal(config_with("quantization_config", quantization), texts);
  };
  refuse({{"quant_method", "gptq"}}, {"quantization_config.quant_method = \"gptq\"", "\"fp8\", \"mxfp4\""});
  refuse({{"quant_method", nullptr}}, {"quantization_config.quant_method is missing"});
  refuse({{"fmt", "e5m2"}}, {"quantization_config.fmt = \"e5m2\"", "\"e4m3\""});
  refuse({{"weight_block_size", {64, 128}}}, {"quantization_config.weight_block_size = [64,128]", "[128,128]"});
  refuse({{"weight_block_size", nullptr}}, {"quantization_config.weight_block_size = null", "[128,128]"});
  refuse({{"activation_scheme", "static"}}, {"quantization_config.activation_scheme = \"static\"", "\"dynamic\""});
  refuse({{"scale_fmt", "e8"}}, {"quantization_config.scale_fmt = \"e8\"", "\"ue8m0\""});
  refuse({{"bits", 4}}, {"quantization_config.bits = 4", "allowed fields: quant_method, fmt"});
  refuse({{"quant_method", "mxfp4"}}, {"quantization_config.weight_block_size = [128,128] is not supported"});
  expect_refusal(config_with("quantization_config", 8), {"quantization_config = 8", "object"});
}

TEST_CASE("fp8 in blocks and mxfp4 are accepted as they are published, and change nothing in the model") {
  const json config = GENERATE(
      json{{"activation_scheme", "dynamic"},
           {"fmt", "e4m3"},
           {"quant_method", "fp8"},
           {"weight_block_size", {128, 128}}},
      json{{"quant_method", "fp8"}, {"scale_fmt", "ue8m0"}, {"weight_block_size", {128, 128}}},
      json{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}, {"modules_to_not_convert", {"lm_head"}}},
      json{{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"model.layers.*.self_attn", "lm_head"}}});
  CAPTURE(config.dump());

  const metro::ModelSpec spec = parse_model_spec(config_with("quantization_config", config), std::nullopt);

  CHECK(spec.hidden_size == 48);
  CHECK(metro::tensor_sources(spec).size() ==
        metro::tensor_sources(parse_model_spec(metro::test::small_config().dump(), std::nullopt)).size());
}

TEST_CASE("a rope scaling that is not known, and any field of one that is not known, is refused") {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  const auto yarn_with = [&yarn](const char* name, const json& value) {
    json changed = yarn;
    changed[name] = value;
    return config_with("rope_scaling", changed);
  };
  expect_refusal(config_with("rope_scaling", {{"type", "linear"}}),
                 {"rope_scaling.type = \"linear\"", "allowed: absent or null, \"default\", \"yarn\""});
  expect_refusal(config_with("rope_parameters", {{"rope_type", "dynamic"}}),
                 {"rope_parameters.rope_type = \"dynamic\""});
  expect_refusal(config_with("rope_scaling", {{"factor", 2.0}}), {"rope_scaling.factor = 2.0"});
  expect_refusal(config_with("rope_scaling", 2), {"rope_scaling = 2", "object"});
  expect_refusal(yarn_with("long_factor", {1.0}), {"rope_scaling.long_factor = [1.0]", "not supported"});
  expect_refusal(yarn_with("factor", 0.5), {"rope_scaling.factor = 0.5", "at least 1"});
  expect_refusal(yarn_with("factor", "4"), {"rope_scaling.factor = \"4\"", "positive number"});
  expect_refusal(yarn_with("truncate", 1), {"rope_scaling.truncate = 1", "true or false"});
  expect_refusal(yarn_with("type", "default"), {"rope_scaling.type = \"default\" contradicts rope_type = yarn"});
  expect_refusal(yarn_with("original_max_position_embeddings", nullptr),
                 {"rope_scaling.original_max_position_embeddings is missing"});
  json both = metro::test::small_config();
  both["rope_scaling"] = yarn;
  both["rope_parameters"] = yarn;
  expect_refusal(both.dump(), {"rope_parameters = ", "stands beside another scaling"});
}

TEST_CASE("an unknown model is refused with the list of supported ones") {
  expect_refusal(config_with("model_type", "llama"), {"model_type = \"llama\"", "supported: ", "qwen3_moe"});
  expect_refusal(config_with("model_type", 3), {"model_type = 3", "string"});
  expect_refusal(config_without("model_type"), {"model_type is missing"});
}

TEST_CASE("two names of one field that contradict each other are refused") {
  expect_refusal(config_with("num_local_experts", 8), {"num_local_experts = 8", "contradicts num_experts = 7"});
  expect_refusal(config_with("rope_parameters", {{"rope_theta", 1.0}}),
                 {"rope_parameters.rope_theta = 1.0 contradicts rope_theta = 5000"});
}

TEST_CASE("a required field that is missing is named") {
  for (const char* field :
       {"num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings", "rms_norm_eps",
        "num_attention_heads", "moe_intermediate_size", "norm_topk_prob", "rope_theta", "intermediate_size"}) {
    const std::string complaint = std::string(field) + " is missing";
    expect_refusal(config_without(field), {"config.json", complaint.c_str()});
  }
  expect_refusal(config_without("num_experts"), {"num_experts or num_local_experts or n_routed_experts is missing"});
  expect_refusal(config_without("num_experts_per_tok"), {"num_experts_per_tok or experts_per_token is missing"});
}

TEST_CASE("numbers that float32 cannot hold, alone or in what follows from them, are refused") {
  for (const json& value : {json(1e300), json(1e-300), json(0), json(-2.0), json("10000")}) {
    const std::string complaint = "rope_theta = " + value.dump() + " must be a positive number that float32 can hold";
    expect_refusal(config_with("rope_theta", value), {complaint.c_str()});
  }
  const json yarn = {{"rope_type", "yarn"}, {"factor", 1e38}, {"original_max_position_embeddings", 64}};
  expect_refusal(config_with("rope_scaling", yarn),
                 {"rope_theta = 5000 with rope scaling yarn", "float32 cannot hold"});
}

TEST_CASE("a rope_theta of 1 or less, by which no pair turns slower than another, is refused") {
  expect_refusal(config_with("rope_theta", 1.0), {"config.json: rope_theta = 1 must be above 1"});
  expect_refusal(config_with("rope_theta", 0.5), {"rope_theta = 0.5 must be above 1"});
}

TEST_CASE("a rope_theta in either table of rope settings is read, and must not contradict the one beside it") {
  const json table = {{"rope_type", "default"}, {"rope_theta", 700.0}};
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    json config = metro::test::small_config();
    config[name] = table;
    const std::string complaint = std::string(name) + ".rope_theta = 700.0 contradicts rope_theta = 5000";
    expect_refusal(config.dump(), {complaint.c_str()});
    config.erase("rope_theta");

    CHECK(parse_model_spec(config.dump(), std::nullopt).rope.theta == 700.0);
  }
}

TEST_CASE("sizes that are not positive, not integers or absurdly large are refused") {
  for (const char* field :
       {"num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings", "num_attention_heads",
        "num_key_value_heads", "head_dim", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
        "intermediate_size", "decoder_sparse_step"}) {
    for (const json& value :
         {json(0), json(-4), json(2.5), json("8"), json(1ULL << 40), json(18446744073709551615ULL)}) {
      const std::string complaint = std::string(field) + " = " + value.dump() + " must be an integer from ";
      expect_refusal(config_with(field, value), {complaint.c_str()});
    }
  }
}

TEST_CASE("sizes that do not fit together are refused") {
  expect_refusal(config_with("num_key_value_heads", 4), {"num_key_value_heads = 4", "divide num_attention_heads = 6"});
  expect_refusal(config_with("num_experts_per_tok", 8), {"num_experts_per_tok = 8", "from 1 to 7"});
  expect_refusal(config_with("head_dim", 7), {"head_dim = 7", "even"});
  expect_refusal(config_with("mlp_only_layers", {0, 5}), {"mlp_only_layers = [0,5]", "from 0 to 4"});
  expect_refusal(config_with("mlp_only_layers", {1, 3}), {"mlp_only_layers = [1,3]", "no layer with experts"});
  json uneven = metro::test::small_config();
  uneven.erase("head_dim");
  uneven["hidden_size"] = 50;
  expect_refusal(uneven.dump(), {"hidden_size = 50", "multiple of num_attention_heads = 6"});
}

TEST_CASE("a model with more experts over all layers than any machine holds is refused") {
  json config = metro::test::small_config();
  config["num_hidden_layers"] = 999;
  config["num_experts"] = 16000;

  expect_refusal(config.dump(), {"num_experts = 16000", "from 1 to 262"});
}

TEST_CASE("numbers that are not numbers are refused") {
  expect_refusal(config_with("rms_norm_eps", 0), {"rms_norm_eps = 0 must be a positive number"});
  expect_refusal(config_with("rms_norm_eps", 1e-60), {"rms_norm_eps = 1e-60", "float32"});
  expect_refusal(config_with("rms_norm_eps", 1), {"rms_norm_eps = 1 must lie between 0 and 1"});
  expect_refusal(config_with("rope_theta", "1e6"), {"rope_theta = \"1e6\" must be a positive number"});
  expect_refusal(config_with("norm_topk_prob", 1), {"norm_topk_prob = 1 must be true or false"});
  expect_refusal(config_with("tie_word_embeddings", "yes"), {"tie_word_embeddings = \"yes\" must be true or false"});
}

TEST_CASE("an end token outside the vocabulary is refused with the file it stands in") {
  expect_refusal(config_with("eos_token_id", {9, 100}), {"config.json: eos_token_id = [9,100]", "from 0 to 99"});
  expect_error(ExitCode::checkpoint, {"generation_config.json: eos_token_id = -1"},
               [] { parse_model_spec(metro::test::small_config().dump(), R"({"eos_token_id": -1})"); });
}

TEST_CASE("malformed JSON is refused with file and place") {
  expect_refusal("{\"model_type\": ", {"config.json", "line 1"});
  expect_refusal("[1, 2]", {"config.json: must be a JSON object", "[1,2]"});
  expect_refusal(R"({"model_type": "qwen3_moe", "model_type": "qwen3_moe"})", {"config.json", "twice"});
  expect_error(ExitCode::checkpoint, {"generation_config.json", "line 1"},
               [] { parse_model_spec(metro::test::small_config().dump(), "{"); });
}
