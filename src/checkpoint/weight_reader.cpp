#include "checkpoint/weight_reader.hpp"

#include "base/error.hpp"

namespace metro {

std::int64_t TensorInfo::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

const TensorInfo& WeightReader::info(const std::string& dataset) const {
  const auto found = tensors().find(dataset);
  METRO_REQUIRE(found != tensors().end(), "no tensor " + dataset);
  return found->second;
}

}  // namespace metro
