#include "kernels/queue_marks.hpp"

#include "kernel_data.hpp"
#include "kernels/linear.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <numeric>
#include <utility>

using metro::QueueMarks;

TEST_CASE("marks tell the times between them, which are no longer than all took, and the last one stays") {
  const metro::test::Array<float> x("x", 1000);
  metro::test::Array<float> y("y", 1000);
  std::vector<double> seconds{7.0};
  const auto begin = std::chrono::steady_clock::now();
  QueueMarks marks;

  marks.take(seconds);
  CHECK(seconds.empty());
  for (int i = 0; i < 3; ++i) {
    marks.add();
    metro::add(x.data(), 1000, y.data());
  }
  marks.add();
  CHECK(marks.size() == 4);
  marks.take(seconds);

  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(seconds.size() == 3);
  CHECK(*std::min_element(seconds.begin(), seconds.end()) >= 0.0);
  CHECK(std::accumulate(seconds.begin(), seconds.end(), 0.0) <= elapsed_s * (1.0 + 1e-6));
  CHECK(marks.size() == 1);

  QueueMarks moved = std::move(marks);
  moved.add();
  moved.take(seconds);
  CHECK(seconds.size() == 1);
}
