// Kernels of the host have no product of a vendor.
#include "base/error.hpp"
#include "kernels/grouped_experts.hpp"

namespace metro {

struct GroupedExperts::Native {};

bool GroupedExperts::is_supported() {
  return false;
}

std::string GroupedExperts::why_not(const ExpertWeights& /*shape*/) {
  return "kernels of this metro run on the host";
}

GroupedExperts::GroupedExperts(std::int64_t /*hidden_size*/, std::int64_t /*intermediate_size*/,
                               std::int64_t /*most_experts*/) {
  METRO_REQUIRE(is_supported(), "kernels of the host have no grouped product");
}
GroupedExperts::~GroupedExperts() = default;
GroupedExperts::GroupedExperts(GroupedExperts&& other) noexcept = default;
GroupedExperts& GroupedExperts::operator=(GroupedExperts&& other) noexcept = default;

void GroupedExperts::run(std::span<const ExpertWork> /*work*/, float* /*x*/, float* /*hidden*/, float* /*y*/) {
  METRO_REQUIRE(is_supported(), "kernels of the host have no grouped product");
}

std::int64_t GroupedExperts::num_bytes() const {
  return 0;
}

std::int64_t GroupedExperts::planned_bytes(std::int64_t /*hidden_size*/, std::int64_t /*intermediate_size*/,
                                           std::int64_t /*most_experts*/) {
  return 0;
}

}  // namespace metro
