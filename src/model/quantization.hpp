// The field quantization_config of a config.json: how published weights were made smaller.
#pragma once

#include "base/stored_type.hpp"
#include "model/config_fields.hpp"
#include "model/family.hpp"

#include <string_view>

namespace metro {

// What published tensors of scales, and of the values that they scale, are called after the name of the tensor that
// they stand for or belong to.
inline constexpr const char* fp8_scales_suffix = "_scale_inv";
inline constexpr const char* mxfp4_blocks_suffix = "_blocks";
inline constexpr const char* mxfp4_scales_suffix = "_scales";

// Accepts what the converter can read: no such field; "fp8" (e4m3, scales per 128 x 128 block); "mxfp4". Which tensors
// are stored so is told by their files, not by this field; how activations were meant to be rounded does not matter
// here, since they stay fp32. Throws Error(checkpoint) naming the field for anything else.
void check_quantization(const ConfigFields& config);

// How the datasets of a model are published, as far as its config.json tells: linear layers as fp8, experts as mxfp4,
// all else as bf16. And how a checkpoint holds them: what cannot keep its scales is widened to f32.
class PublishedTypes {
 public:
  explicit PublishedTypes(std::string_view config_json);
  StoredType type_of(const TensorSource& source) const;
  StoredType converted_type_of(const TensorSource& source) const;

 private:
  StoredType linear_ = StoredType::bf16;
};

}  // namespace metro
