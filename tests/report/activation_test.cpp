#include "report/activation_recorder.hpp"

#include <catch2/catch.hpp>

#include <vector>

using metro::ActivationRecorder;
using metro::RoutingPolicy;

namespace {

// Two ranks with three slots each: experts 0, 1, 2 and 2, 3, 1; the second layer the same.
metro::Placement placement() {
  return {2, 4, 2, 3, {0, 1, 2, 2, 3, 1, 0, 1, 2, 2, 3, 1}};
}

}  // namespace

TEST_CASE("beside what a policy activated stands the least that was possible") {
  ActivationRecorder recorder(placement(), RoutingPolicy::metro);
  const std::vector<std::int32_t> counts{5, 1, 1, 0};

  // Experts 0, 1, 2 are active; 0 has to be on rank 0, so at best one of the others joins it: lambda 2.
  recorder.routed(0, counts, std::vector<std::int32_t>{3, 0});
  recorder.routed(1, counts, std::vector<std::int32_t>{1, 2});
  const auto layers = recorder.take();

  REQUIRE(layers.size() == 2);
  CHECK(layers[0].active == 3);
  CHECK(layers[0].lambda == 3);
  CHECK(layers[0].activated == 3);
  CHECK(layers[0].optimum == 2);
  CHECK(layers[1].lambda == 2);
  CHECK(layers[1].optimum == 2);
}

TEST_CASE("the optimum can lie above the bound of equal shares") {
  // Both active experts live on rank 0 only.
  const metro::Placement crowded{1, 4, 2, 2, {0, 1, 2, 3}};
  ActivationRecorder recorder(crowded, RoutingPolicy::even);

  recorder.routed(0, std::vector<std::int32_t>{1, 1, 0, 0}, std::vector<std::int32_t>{2, 0});

  CHECK(recorder.take().at(0).optimum == 2);
}

TEST_CASE("a token-granular policy may activate more replicas than there are active experts") {
  ActivationRecorder recorder(placement(), RoutingPolicy::even);

  recorder.routed(0, std::vector<std::int32_t>{0, 2, 2, 0}, std::vector<std::int32_t>{2, 2});
  const auto layers = recorder.take();

  CHECK(layers.at(0).active == 2);
  CHECK(layers.at(0).activated == 4);
  CHECK(layers.at(0).optimum == 1);
}

TEST_CASE("a step that routes nothing leaves no layers, and layers are not kept for the next step") {
  ActivationRecorder recorder(placement(), RoutingPolicy::exact);

  CHECK(recorder.take().empty());
  recorder.routed(0, std::vector<std::int32_t>{1, 0, 0, 0}, std::vector<std::int32_t>{1, 0});
  CHECK(recorder.take().size() == 2);
  CHECK(recorder.take().empty());
}

TEST_CASE("the optimum is that of the placement in force") {
  ActivationRecorder recorder({1, 4, 2, 2, {0, 1, 2, 3}}, RoutingPolicy::even);
  const std::vector<std::int32_t> counts{1, 1, 0, 0}, activated{2, 0};

  recorder.routed(0, counts, activated);
  const auto before = recorder.take();
  recorder.placement_changed({1, 4, 2, 2, {0, 2, 1, 3}});
  recorder.routed(0, counts, activated);
  const auto after = recorder.take();

  CHECK(before.at(0).optimum == 2);
  CHECK(after.at(0).optimum == 1);
}
