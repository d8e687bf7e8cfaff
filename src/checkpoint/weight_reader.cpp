#include "checkpoint/weight_reader.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

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

void WeightReader::read_tensor(const std::string& dataset, std::span<std::byte> out) const {
  const TensorInfo& tensor = info(dataset);
  METRO_REQUIRE(std::ssize(out) == tensor.num_bytes(), dataset);
  for (std::int64_t unit = 0; unit < tensor.num_units(); ++unit) {
    UnitReader(*this, tensor, unit).read(out.subspan(at(unit * tensor.unit_bytes()), at(tensor.unit_bytes())));
  }
}

void WeightReader::read_expert(const std::string& dataset, std::int64_t expert, std::span<std::byte> out) const {
  const TensorInfo& tensor = info(dataset);
  METRO_REQUIRE(tensor.is_expert_tensor, dataset);
  METRO_REQUIRE(expert >= 0 && expert < tensor.num_units(), fmt::format("{}: expert {}", dataset, expert));
  METRO_REQUIRE(std::ssize(out) == tensor.unit_bytes(), dataset);
  UnitReader(*this, tensor, expert).read(out);
}

UnitReader::UnitReader(const WeightReader& reader, const TensorInfo& tensor, std::int64_t unit_idx)
    : reader_(&reader),
      tensor_(&tensor),
      unit_idx_(unit_idx),
      position_(unit_idx * tensor.unit_bytes()),
      end_(position_ + tensor.unit_bytes()) {
  METRO_REQUIRE(unit_idx >= 0 && unit_idx < tensor.num_units(), fmt::format("{}: unit {}", tensor.dataset, unit_idx));
}

void UnitReader::read(std::span<std::byte> out) {
  METRO_REQUIRE(std::ssize(out) <= bytes_left(), tensor_->dataset);
  reader_->read_bytes(*tensor_, position_, out);
  reader_->bytes_read_ += std::ssize(out);
  position_ += std::ssize(out);
  if (tensor_->digests.empty()) {
    return;
  }
  digest_.update(out);
  if (position_ == end_ && digest_.digest() != tensor_->digests[at(unit_idx_)]) {
    const std::string expert = tensor_->is_expert_tensor ? fmt::format(", expert {},", unit_idx_) : "";
    throw Error(ExitCode::checkpoint,
                fmt::format("{}: tensor {}{} does not have the digest it was written with: the file is damaged",
                            reader_->path(), tensor_->dataset, expert));
  }
}

}  // namespace metro
