// The queue, mirrors and graphs as every build has them. What only a device does is in tests/device_double.
#include "kernels/queue.hpp"

#include "base/error.hpp"
#include "kernels/graph.hpp"
#include "kernels/linear.hpp"
#include "kernels/mirror.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

using metro::Buffer;
using metro::KernelGraph;
using metro::Mirror;

namespace {

// first, first + 1, ... for kernels and host code.
Mirror<float> counted(float first, std::int64_t size) {
  Mirror<float> values("values", size);
  std::iota(values.span().begin(), values.span().end(), first);
  values.to_kernels(size);
  return values;
}

std::vector<float> on_kernels(const Mirror<float>& values) {
  std::vector<float> copied(static_cast<std::size_t>(values.size()));
  metro::copy_to_host<float>(copied, values.kernels());
  return copied;
}

}  // namespace

TEST_CASE("a new mirror is zero on both sides") {
  const Mirror<std::int32_t> values("values", 1000);

  std::vector<std::int32_t> copied(1000, 7);
  metro::copy_to_host<std::int32_t>(copied, values.kernels());

  CHECK(values.size() == 1000);
  CHECK(values.num_bytes() == 4000);
  CHECK(std::all_of(values.span().begin(), values.span().end(), [](std::int32_t value) { return value == 0; }));
  CHECK(copied == std::vector<std::int32_t>(1000, 0));
}

TEST_CASE("an empty mirror has no memory and copies nothing") {
  const Mirror<float> values("values", 0);

  values.to_kernels(0);
  values.to_host(0);
  metro::wait_for_kernels();

  CHECK(values.host() == nullptr);
  CHECK(values.kernels() == nullptr);
}

TEST_CASE("kernels see what the host wrote, and the host sees what kernels wrote after it waited") {
  const Mirror<float> x = counted(1.0F, 100);
  const Mirror<float> y = counted(1000.0F, 100);

  metro::add(x.kernels(), 100, y.kernels());
  y.to_host(100);
  metro::wait_for_kernels();

  for (std::int64_t i = 0; i < 100; ++i) {
    CHECK(y[i] == static_cast<float>(1001 + 2 * i));
  }
}

TEST_CASE("a mirror's copies are of the elements asked for") {
  const Mirror<float> values("values", 5);
  std::fill(values.span().begin(), values.span().end(), 3.0F);

  values.to_kernels(2, 1);
  metro::wait_for_kernels();

  if (metro::kernels_use_host_memory()) {
    CHECK(on_kernels(values) == std::vector<float>(5, 3.0F));
  } else {
    CHECK(on_kernels(values) == std::vector<float>{0.0F, 3.0F, 3.0F, 0.0F, 0.0F});
    std::fill(values.span().begin(), values.span().end(), 9.0F);
    values.to_host(2, 2);
    metro::wait_for_kernels();
    CHECK(std::vector<float>(values.span().begin(), values.span().end()) ==
          std::vector<float>{9.0F, 9.0F, 3.0F, 0.0F, 9.0F});
  }
}

TEST_CASE("copies and kernels run in the order in which they are enqueued") {
  const Mirror<float> one = counted(1.0F, 1);
  const Mirror<float> sum = counted(0.0F, 1);
  const Mirror<float> copies("copies", 3);

  for (std::int64_t i = 0; i < 3; ++i) {
    metro::add(one.kernels(), 1, sum.kernels());
    metro::queue_copy(copies.kernels() + i, sum.kernels(), 4);
    metro::add(sum.kernels(), 1, one.kernels());
  }
  copies.to_host(3);
  metro::wait_for_kernels();

  // one, sum: 1, 0 -> 2, 1 -> 5, 3 -> 13, 8
  CHECK(std::vector<float>(copies.span().begin(), copies.span().end()) == std::vector<float>{1.0F, 3.0F, 8.0F});
}

TEST_CASE("launches of kernels are counted, on a device copies too") {
  const Mirror<float> x = counted(1.0F, 10);
  const std::int64_t before = metro::num_launches();

  metro::add(x.kernels(), 10, x.kernels());
  metro::add(x.kernels(), 0, x.kernels());  // nothing to launch
  x.to_host(10);
  metro::wait_for_kernels();

  CHECK(metro::num_launches() - before == (metro::kernels_use_host_memory() ? 1 : 2));
}

TEST_CASE("there is a native queue where kernels do not run on the host") {
  CHECK((metro::native_queue() == nullptr) == metro::kernels_use_host_memory());
}

TEST_CASE("a graph runs nothing when it is recorded and everything when it is launched") {
  KernelGraph graph;
  CHECK_THROWS_AS(graph.launch(), metro::Bug);
  if (!KernelGraph::is_supported()) {
    CHECK_THROWS_AS(graph.record([] {}), metro::Bug);
    return;
  }
  const Mirror<float> x = counted(1.0F, 4);
  const Mirror<float> y = counted(10.0F, 4);
  metro::wait_for_kernels();
  const std::int64_t before = metro::num_launches();

  graph.record([&] {
    metro::add(x.kernels(), 4, y.kernels());
    metro::add(y.kernels(), 4, x.kernels());
    y.to_host(4);
  });

  CHECK(graph.is_recorded());
  CHECK(metro::num_launches() == before);
  CHECK(on_kernels(y) == std::vector<float>{10.0F, 11.0F, 12.0F, 13.0F});
  graph.launch();
  graph.launch();
  metro::wait_for_kernels();
  CHECK(metro::num_launches() == before + 6);
  // x, y: 1, 10 -> 12, 11 -> 35, 23
  CHECK(y[0] == 23.0F);
  CHECK(on_kernels(x)[0] == 35.0F);
}

TEST_CASE("a graph reads memory when it is launched, and keeps the arguments of its recording") {
  if (!KernelGraph::is_supported()) {
    return;
  }
  const Mirror<float> x = counted(1.0F, 4);
  const Mirror<float> y("y", 4);
  std::int64_t size = 2;
  KernelGraph graph;
  graph.record([&] {
    x.to_kernels(4);
    metro::add(x.kernels(), size, y.kernels());
    y.to_host(4);
  });

  size = 4;
  x[0] = 100.0F;
  x[3] = 400.0F;
  graph.launch();
  metro::wait_for_kernels();

  CHECK(std::vector<float>(y.span().begin(), y.span().end()) == std::vector<float>{100.0F, 2.0F, 0.0F, 0.0F});
}

TEST_CASE("a graph can be recorded anew and moved, and graphs and kernels run in order") {
  if (!KernelGraph::is_supported()) {
    return;
  }
  const Mirror<float> x = counted(1.0F, 1);
  const Mirror<float> y = counted(0.0F, 1);
  KernelGraph graph;
  graph.record([&] { metro::add(y.kernels(), 1, y.kernels()); });
  graph.record([&] { metro::add(x.kernels(), 1, y.kernels()); });
  const KernelGraph moved = std::move(graph);

  moved.launch();                                  // 1
  metro::add(y.kernels(), 1, y.kernels());         // 2
  moved.launch();                                  // 3
  metro::queue_copy(x.kernels(), y.kernels(), 4);  // adds 3 from now on
  moved.launch();                                  // 6
  y.to_host(1);
  metro::wait_for_kernels();

  CHECK(y[0] == 6.0F);
}
