#include "model/quantization.hpp"

#include "checkpoint/layout.hpp"

namespace metro {

namespace {

void check_fp8(const ConfigFields& quantization) {
  quantization.allow_only_fields({"quant_method", "fmt", "weight_block_size", "activation_scheme", "scale_fmt",
                                  "modules_to_not_convert", "ignored_layers"});
  quantization.allow_only("fmt", {"\"e4m3\""});
  quantization.allow_only("activation_scheme", {"\"dynamic\""});
  quantization.allow_only("scale_fmt", {"\"ue8m0\"", "\"float\""});  // powers of two, in files of fp32 all the same
  constexpr const char* block = "weight_block_size";
  if (!quantization.has(block)) {
    quantization.refuse(block, "is not supported (allowed: [128,128])");
  }
  quantization.allow_only(block, {"[128,128]"});
}

}  // namespace

void check_quantization(const ConfigFields& config) {
  const auto quantization = config.object("quantization_config");
  if (!quantization) {
    return;
  }
  const std::string method = quantization->text("quant_method");
  if (method == "fp8") {
    check_fp8(*quantization);
  } else if (method == "mxfp4") {
    quantization->allow_only_fields({"quant_method", "modules_to_not_convert"});
  } else {
    quantization->refuse("quant_method", "is not supported (allowed: \"fp8\", \"mxfp4\")");
  }
}

PublishedTypes::PublishedTypes(std::string_view config_json) {
  const ConfigFields config(config_json, "config.json");
  check_quantization(config);
  if (const auto quantization = config.object("quantization_config")) {
    linear_ = quantization->text("quant_method") == "fp8" ? StoredType::fp8 : StoredType::mxfp4;
  }
}

StoredType PublishedTypes::type_of(const TensorSource& source) const {
  const bool is_linear = source.may_be_quantised || source.dataset.ends_with(layout::attention_kv_a) ||
                         source.dataset.ends_with(layout::attention_kv_b);
  return is_linear && (linear_ != StoredType::mxfp4 || source.per_expert) ? linear_ : StoredType::bf16;
}

StoredType PublishedTypes::converted_type_of(const TensorSource& source) const {
  const StoredType type = type_of(source);
  return has_scales(type) && !source.may_be_quantised ? StoredType::f32 : type;
}

}  // namespace metro
