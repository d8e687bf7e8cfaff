#include "bench/random_weights.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "bench/random_words.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/scaled_weights.hpp"

#include <cmath>
#include <cstring>
#include <utility>

namespace metro {

RandomWeights::RandomWeights(ModelSpec spec, StoredType linear_type)
    : RandomWeights(std::move(spec), [linear_type](const TensorSource& source) {
        return source.may_be_quantised ? linear_type : StoredType::bf16;
      }) {}

RandomWeights::RandomWeights(ModelSpec spec, const std::function<StoredType(const TensorSource&)>& type_of)
    : spec_(std::move(spec)) {
  for (const TensorSource& source : tensor_sources(spec_)) {
    const StoredType type = source.shape.size() == 1 ? StoredType::f32 : type_of(source);
    add(source, type);
    if (has_scales(type)) {
      TensorSource scales = source;
      scales.dataset = layout::scale_of(source.dataset);
      scales.shape = scale_shape(type, source.shape, matrix_shape(source).front());
      add(scales, scale_type(type));
    }
  }
}

void RandomWeights::add(const TensorSource& source, StoredType type) {
  TensorInfo tensor;
  tensor.dataset = source.dataset;
  tensor.type = type;
  tensor.shape = source.shape;
  tensor.is_expert_tensor = source.per_expert;
  tensors_.emplace(source.dataset, std::move(tensor));
}

namespace {

void fill_with(float value, std::span<std::byte> out) {
  for (std::size_t i = 0; i < out.size(); i += sizeof value) {
    std::memcpy(out.data() + i, &value, sizeof value);
  }
}

}  // namespace

void RandomWeights::read_bytes(const TensorInfo& tensor, std::int64_t offset, std::span<std::byte> out) const {
  METRO_REQUIRE(tensor.type != StoredType::fp8 && tensor.type != StoredType::mxfp4, tensor.dataset);
  if (layout::is_scale(tensor.dataset)) {
    const auto inputs = static_cast<float>(info(layout::weights_of(tensor.dataset)).shape.back());
    return fill_with(1.0F / (127.0F * std::sqrt(inputs)), out);
  }
  if (tensor.shape.size() == 1) {
    return fill_with(1.0F, out);
  }
  // Of int8 any bits will do.
  const WordPattern pattern = tensor.type == StoredType::int8 ? WordPattern{~std::uint64_t{0}, 0}
                                                              : bf16_pattern(exponent_of_weights(tensor.shape.back()));
  constexpr auto word_bytes = static_cast<std::int64_t>(sizeof(std::uint64_t));
  METRO_REQUIRE(offset % word_bytes == 0, tensor.dataset);
  fill_with_words(pattern, digest_of(tensor.dataset), offset / word_bytes, out);
}

}  // namespace metro
