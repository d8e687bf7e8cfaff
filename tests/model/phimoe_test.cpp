// What phimoe configs say, and the angles of LongRoPE.
#include "base/file.hpp"
#include "checkpoint/layout.hpp"
#include "model/family.hpp"
#include "model/rope_scaling.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

using metro::ExitCode;
using metro::ModelSpec;
using metro::parse_model_spec;
using metro::TensorSource;
using metro::test::expect_error;
using nlohmann::json;

namespace {

// Of Phi-mini-MoE-instruct.
json published() {
  const std::string path = METRO_TEST_DATA "/models/microsoft--Phi-mini-MoE-instruct_config.json";
  return json::parse(metro::read_file(path, ExitCode::input));
}

// The same with heads of 8 dimensions, 512 positions and LongRoPE.
json with_longrope() {
  json config = published();
  config["head_dim"] = 8;
  config["max_position_embeddings"] = 512;
  config["sliding_window"] = 512;
  config["original_max_position_embeddings"] = 64;
  config["rope_scaling"] = {{"type", "longrope"},
                            {"short_factor", {1.0, 1.5, 2.0, 4.0}},
                            {"long_factor", {1.0, 3.0, 9.0, 27.0}},
                            {"short_mscale", 1.25},
                            {"long_mscale", 1.5},
                            {"original_max_position_embeddings", 64}};
  return config;
}

ModelSpec spec_of(const json& config) {
  return parse_model_spec(config.dump(), std::nullopt);
}

void expect_refusal(const json& config, std::initializer_list<const char*> texts) {
  CAPTURE(config.dump());
  expect_error(ExitCode::checkpoint, texts, [&] { spec_of(config); });
}

std::set<std::string> datasets_of(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const TensorSource& source : tensor_sources(spec)) {
    names.insert(source.dataset);
  }
  return names;
}

// theta^(-2i / 8) / factors[i].
void check_angles(const metro::RopeFactors& set, const std::vector<double>& factors, float scale) {
  REQUIRE(set.inverse_frequencies.size() == factors.size());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double expected = std::pow(10000.0, -static_cast<double>(i) / 4.0) / factors[i];
    // Four roundings; that of the exponent is multiplied by ln(theta) < 10.
    CHECK(std::abs(static_cast<double>(set.inverse_frequencies[i]) - expected) <= 14 * 0x1p-24 * expected);
  }
  CHECK(set.scale == scale);
}

}  // namespace

TEST_CASE("a published phimoe config gives LayerNorm, sparsemixer, biases and one window in all layers") {
  const ModelSpec spec = spec_of(published());

  CHECK(spec.family == "phimoe");
  CHECK(spec.norm == metro::NormKind::layer);
  CHECK(spec.norm_eps == 1e-5F);
  CHECK(spec.attention.head_dim == 128);
  CHECK((spec.attention.has_qkv_bias && spec.attention.has_output_bias && spec.head_has_bias));
  CHECK(spec.attention.windows == std::vector<std::int64_t>(32, 2047));
  CHECK(spec.moe.gate.kind == metro::GateKind::sparsemixer);
  CHECK(spec.moe.gate.jitter == 0.01F);
  CHECK((spec.moe.num_experts == 16 && spec.moe.top_k == 2 && spec.moe.intermediate_size == 960));
  CHECK(spec.num_moe_layers() == 32);
  CHECK((spec.rope.sets.size() == 1 && spec.rope.switch_at == 0));
}

TEST_CASE("a window that no sequence outgrows is none") {
  for (const json& window : {json(nullptr), json(4096), json(262144)}) {
    json config = published();
    config["sliding_window"] = window;
    CHECK(spec_of(config).attention.windows.empty());
  }
}

TEST_CASE("the tensors of phimoe have biases of norms always, and those of linear layers where the config says so") {
  json config = published();
  const std::set<std::string> with = datasets_of(spec_of(config));
  config["attention_bias"] = false;
  config.erase("lm_head_bias");
  const std::set<std::string> without = datasets_of(spec_of(config));

  for (const char* name : {"/layers/000/attention/norm_bias", "/layers/031/mlp_norm_bias", "/norm_bias"}) {
    CHECK((with.count(name) == 1 && without.count(name) == 1));
  }
  for (const char* name : {"/layers/000/attention/q_bias", "/layers/000/attention/k_bias",
                           "/layers/031/attention/v_bias", "/layers/031/attention/o_bias", "/lm_head_bias"}) {
    CHECK((with.count(name) == 1 && without.count(name) == 0));
  }
}

TEST_CASE("the tensors of phimoe are those of its checkpoint, by name and shape") {
  const std::string folder = METRO_TEST_DATA "/families/phimoe";
  const std::string file = metro::read_file(folder + "/model.safetensors", ExitCode::input);
  std::size_t header_bytes = 0;
  for (std::size_t i = 8; i-- > 0;) {
    header_bytes = header_bytes * 256 + static_cast<unsigned char>(file[i]);
  }
  json header = json::parse(file.substr(8, header_bytes));
  header.erase("__metadata__");

  const ModelSpec spec = parse_model_spec(metro::read_file(folder + "/config.json", ExitCode::input), std::nullopt);

  std::size_t num_parts = 0;
  for (const TensorSource& source : tensor_sources(spec)) {
    for (const std::string& part : source.parts) {
      CAPTURE(part);
      REQUIRE(header.contains(part));
      CHECK(header[part].at("shape") == json(part_shape(source)));
      ++num_parts;
    }
  }
  CHECK(num_parts == header.size());
}

TEST_CASE("LongRoPE has a short set and a long one, each with its scale") {
  for (const char* type : {"longrope", "su"}) {
    json config = with_longrope();
    config["rope_scaling"]["type"] = type;

    const ModelSpec spec = spec_of(config);

    CHECK(spec.rope.switch_at == 64);
    REQUIRE(spec.rope.sets.size() == 2);
    check_angles(spec.rope.sets[0], {1.0, 1.5, 2.0, 4.0}, 1.25F);
    check_angles(spec.rope.sets[1], {1.0, 3.0, 9.0, 27.0}, 1.5F);
  }
}

TEST_CASE("LongRoPE without its own scales has the attention factor, given or from how far the context is stretched") {
  json config = with_longrope();
  config["rope_scaling"].erase("short_mscale");
  config["rope_scaling"].erase("original_max_position_embeddings");
  const float from_stretch = spec_of(config).rope.sets[0].scale;
  config["rope_scaling"]["attention_factor"] = 1.75;

  CHECK(from_stretch == static_cast<float>(std::sqrt(1.5)));  // 512 = 64 * 8, ln 8 / ln 64 = 1/2
  CHECK(spec_of(config).rope.sets[0].scale == 1.75F);
  CHECK(spec_of(config).rope.sets[1].scale == 1.5F);
  CHECK(metro::longrope_scale(4096, 131072) == Approx(std::sqrt(17.0 / 12.0)).epsilon(1e-14));  // 2^12, 2^17
  CHECK(metro::longrope_scale(4096, 4096) == 1.0);
}

TEST_CASE("LongRoPE whose long set no sequence reaches has the short one alone") {
  json config = with_longrope();
  config["max_position_embeddings"] = 64;

  const ModelSpec spec = spec_of(config);

  CHECK(spec.rope.switch_at == 0);
  REQUIRE(spec.rope.sets.size() == 1);
  check_angles(spec.rope.sets[0], {1.0, 1.5, 2.0, 4.0}, 1.25F);
}

TEST_CASE("phimoe configs that cannot be run exactly are refused") {
  const auto with = [](const char* name, const json& value) {
    json config = published();
    config[name] = value;
    return config;
  };
  json tied = published();
  tied["tie_word_embeddings"] = true;

  expect_refusal(with("num_experts_per_tok", 3), {"num_experts_per_tok = 3", "allowed: absent or null, 2"});
  expect_refusal(with("hidden_act", "gelu"), {"hidden_act = \"gelu\"", "\"silu\""});
  expect_refusal(with("router_jitter_noise", nullptr), {"router_jitter_noise is missing"});
  expect_refusal(with("router_jitter_noise", -0.1), {"router_jitter_noise = -0.1", "positive"});
  expect_refusal(with("attention_bias", 1), {"attention_bias = 1 must be true or false"});
  expect_refusal(with("sliding_window", 0), {"sliding_window = 0 must be an integer from 1"});
  expect_refusal(tied, {"lm_head_bias = true", "tie_word_embeddings = true"});
}

TEST_CASE("a LongRoPE that is not whole is refused") {
  const auto with = [](const char* name, const json& value) {
    json config = with_longrope();
    config["rope_scaling"][name] = value;
    return config;
  };
  json without_positions = with("original_max_position_embeddings", nullptr);
  without_positions.erase("original_max_position_embeddings");

  expect_refusal(with("short_factor", {1.0, 1.5}), {"short_factor has 2 numbers, must have 4", "8 rotated"});
  expect_refusal(with("long_factor", {1, 2, 3, 4, 5}), {"long_factor has 5 numbers, must have 4"});
  expect_refusal(with("long_factor", nullptr), {"rope_scaling.long_factor is missing"});
  expect_refusal(with("long_factor", {1.0, 2.0, -3.0, 4.0}),
                 {"rope_scaling.long_factor = [1.0,2.0,-3.0,4.0] must be a list of positive numbers"});
  expect_refusal(with("long_factor", 2.0), {"rope_scaling.long_factor = 2.0 must be a list of positive numbers"});
  expect_refusal(with("factor", 8.0), {"rope_scaling.factor = 8.0", "not supported"});
  expect_refusal(with("short_mscale", 0), {"rope_scaling.short_mscale = 0", "positive number"});
  expect_refusal(with("original_max_position_embeddings", 32),
                 {"rope_scaling.original_max_position_embeddings = 32 contradicts", "= 64"});
  expect_refusal(without_positions, {"rope_scaling.original_max_position_embeddings is missing"});
}
