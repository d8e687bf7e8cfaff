#include "bench/random_weights.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "checkpoint/layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace metro {

RandomWeights::RandomWeights(ModelSpec spec, StoredType linear_type) : spec_(std::move(spec)) {
  for (const TensorSource& source : tensor_sources(spec_)) {
    const bool is_vector = source.shape.size() == 1;
    add(source, is_vector ? StoredType::f32 : source.may_be_int8 ? linear_type : StoredType::bf16);
    if (source.may_be_int8 && linear_type == StoredType::int8) {
      TensorSource scales = source;
      scales.dataset = layout::scale_of(source.dataset);
      scales.shape.pop_back();
      add(scales, StoredType::f32);
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

void RandomWeights::read_tensor(const std::string& dataset, std::span<std::byte> out) {
  const TensorInfo& tensor = info(dataset);
  METRO_REQUIRE(static_cast<std::int64_t>(out.size()) == tensor.num_bytes(), dataset);
  if (!tensor.is_expert_tensor) {
    return fill(tensor, 0, out);
  }
  const auto expert_bytes = static_cast<std::int64_t>(out.size()) / tensor.shape.front();
  for (std::int64_t expert = 0; expert < tensor.shape.front(); ++expert) {
    fill(tensor, expert,
         out.subspan(static_cast<std::size_t>(expert * expert_bytes), static_cast<std::size_t>(expert_bytes)));
  }
}

void RandomWeights::read_expert(const std::string& dataset, std::int64_t expert, std::span<std::byte> out) {
  const TensorInfo& tensor = info(dataset);
  METRO_REQUIRE(tensor.is_expert_tensor && expert >= 0 && expert < tensor.shape.front(), dataset);
  METRO_REQUIRE(static_cast<std::int64_t>(out.size()) == tensor.num_bytes() / tensor.shape.front(), dataset);
  fill(tensor, expert, out);
}

namespace {

void fill_with(float value, std::span<std::byte> out) {
  for (std::size_t i = 0; i < out.size(); i += sizeof value) {
    std::memcpy(out.data() + i, &value, sizeof value);
  }
}

}  // namespace

void RandomWeights::fill(const TensorInfo& tensor, std::int64_t unit, std::span<std::byte> out) {
  bytes_read_ += static_cast<std::int64_t>(out.size());
  if (layout::is_scale(tensor.dataset)) {
    const std::string weights = tensor.dataset.substr(0, tensor.dataset.size() - layout::scale_of("").size());
    const auto inputs = static_cast<float>(info(weights).shape.back());
    return fill_with(1.0F / (127.0F * std::sqrt(inputs)), out);
  }
  if (tensor.shape.size() == 1) {
    return fill_with(1.0F, out);
  }
  // bf16: about 1 / sqrt(inputs), sign and mantissa random, exponent fixed. Of int8 any bits will do.
  const auto inputs = static_cast<double>(tensor.shape.back());
  const auto exponent = static_cast<std::uint64_t>(127 - std::lround(std::log2(inputs) / 2)) << 7;
  const bool is_int8 = tensor.type == StoredType::int8;
  const std::uint64_t random_bits = is_int8 ? ~std::uint64_t{0} : 0x807f807f807f807fU;
  const std::uint64_t fixed_bits = is_int8 ? 0 : exponent * 0x0001000100010001U;
  std::uint64_t state = digest_of(tensor.dataset) + static_cast<std::uint64_t>(unit);
  for (std::size_t i = 0; i < out.size(); i += sizeof(std::uint64_t)) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t words = ((state ^ (state >> 32)) & random_bits) | fixed_bits;
    std::memcpy(out.data() + i, &words, std::min(sizeof words, out.size() - i));
  }
}

}  // namespace metro
