#include "bench/random_weights.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "model/family.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace metro {

RandomWeights::RandomWeights(ModelSpec spec) : spec_(std::move(spec)) {
  for (const TensorSource& source : tensor_sources(spec_)) {
    TensorInfo tensor;
    tensor.dataset = source.dataset;
    tensor.type = source.shape.size() == 1 ? StoredType::f32 : StoredType::bf16;
    tensor.shape = source.shape;
    tensor.is_expert_tensor = source.per_expert;
    tensors_.emplace(source.dataset, std::move(tensor));
  }
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

void RandomWeights::fill(const TensorInfo& tensor, std::int64_t unit, std::span<std::byte> out) {
  bytes_read_ += static_cast<std::int64_t>(out.size());
  if (tensor.shape.size() == 1) {
    const float one = 1.0F;
    for (std::size_t i = 0; i < out.size(); i += sizeof one) {
      std::memcpy(out.data() + i, &one, sizeof one);
    }
    return;
  }
  // About 1 / sqrt(inputs): sign and mantissa random, exponent fixed.
  const double inputs = static_cast<double>(tensor.shape.back());
  const auto exponent = static_cast<std::uint64_t>(127 - std::lround(std::log2(inputs) / 2)) << 7;
  const std::uint64_t exponents = exponent * 0x0001000100010001U;
  std::uint64_t state = digest_of(tensor.dataset) + static_cast<std::uint64_t>(unit);
  for (std::size_t i = 0; i < out.size(); i += sizeof(std::uint64_t)) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t words = ((state ^ (state >> 32)) & 0x807f807f807f807fU) | exponents;
    std::memcpy(out.data() + i, &words, std::min(sizeof words, out.size() - i));
  }
}

}  // namespace metro
