#include "trace/batches.hpp"

#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

using metro::ExitCode;
using metro::RequestRows;
using metro::TraceBatch;
using metro::TraceBatches;
using metro::test::expect_error;

namespace {

// Request i has 3 + (5 i mod 11) rows; row ids say request and position: 1000 i + position.
std::vector<RequestRows> numbered_requests(std::int64_t num_requests) {
  std::vector<RequestRows> requests;
  for (std::int64_t i = 0; i < num_requests; ++i) {
    requests.push_back({static_cast<std::uint32_t>(i), {}});
    for (std::int64_t position = 0; position < 3 + 5 * i % 11; ++position) {
      requests.back().rows.push_back(1000 * i + position);
    }
  }
  return requests;
}

std::vector<TraceBatch> steps_of(TraceBatches batches, std::int64_t num_steps) {
  std::vector<TraceBatch> steps;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    steps.push_back(batches.batch());
    batches.advance(1);
  }
  return steps;
}

// request -> (position, rank) of a step
std::map<std::int64_t, std::pair<std::int64_t, std::int32_t>> places(const TraceBatch& batch) {
  std::map<std::int64_t, std::pair<std::int64_t, std::int32_t>> found;
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    found[batch.rows[i] / 1000] = {batch.rows[i] % 1000, batch.row_to_rank[i]};
  }
  return found;
}

}  // namespace

TEST_CASE("a batch has as many sequences as asked for, no request twice, ranks ascending") {
  const std::vector<RequestRows> requests = numbered_requests(20);

  for (const TraceBatch& batch : steps_of(TraceBatches(requests, 12, 5, 1), 200)) {
    CHECK(batch.rows.size() == 12);
    CHECK(places(batch).size() == 12);
    CHECK(std::is_sorted(batch.row_to_rank.begin(), batch.row_to_rank.end()));
    CHECK((batch.row_to_rank.front() >= 0 && batch.row_to_rank.back() < 5));
  }
}

TEST_CASE("a sequence advances by one position per step on its rank, and ends after its last row") {
  const std::vector<RequestRows> requests = numbered_requests(20);
  const std::vector<TraceBatch> steps = steps_of(TraceBatches(requests, 8, 3, 2), 300);
  std::set<std::int64_t> begun;

  for (std::size_t step = 1; step < steps.size(); ++step) {
    const auto before = places(steps[step - 1]);
    for (const auto& [request, place] : places(steps[step])) {
      const bool goes_on = before.contains(request) && before.at(request).first + 1 < 3 + 5 * request % 11;
      CHECK(place.first == (goes_on ? before.at(request).first + 1 : 0));
      if (goes_on) {
        CHECK(place.second == before.at(request).second);
      } else {
        begun.insert(request);
      }
    }
  }

  CHECK(begun.size() == 20);  // all requests had their turn
}

TEST_CASE("sequences are spread evenly over the ranks at first, and a new one goes where fewest are") {
  const std::vector<RequestRows> requests = numbered_requests(40);
  const std::vector<TraceBatch> steps = steps_of(TraceBatches(requests, 10, 4, 3), 200);

  CHECK(steps.front().row_to_rank == std::vector<std::int32_t>{0, 0, 0, 1, 1, 1, 2, 2, 3, 3});
  for (std::size_t step = 1; step < steps.size(); ++step) {
    const auto before = places(steps[step - 1]);
    std::vector<int> num_sequences(4, 0);
    std::vector<int> num_new(4, 0);
    for (const auto& [request, place] : places(steps[step])) {
      ++num_sequences[static_cast<std::size_t>(place.second)];
      num_new[static_cast<std::size_t>(place.second)] += place.first == 0 ? 1 : 0;
    }
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (num_new[rank] > 0) {
        CHECK(num_sequences[rank] - 1 <= *std::min_element(num_sequences.begin(), num_sequences.end()));
      }
    }
  }
}

TEST_CASE("batches depend on the seed and on nothing else") {
  const std::vector<RequestRows> requests = numbered_requests(20);
  const auto rows = [](const TraceBatch& batch) {
    return std::set<std::int64_t>(batch.rows.begin(), batch.rows.end());
  };

  const auto first = steps_of(TraceBatches(requests, 8, 3, 7), 50);
  const auto again = steps_of(TraceBatches(requests, 8, 3, 7), 50);
  const auto other = steps_of(TraceBatches(requests, 8, 3, 8), 50);
  const auto more_ranks = steps_of(TraceBatches(requests, 8, 4, 7), 50);

  int num_equal = 0;
  for (std::size_t step = 0; step < first.size(); ++step) {
    CHECK(first[step].rows == again[step].rows);
    CHECK(first[step].row_to_rank == again[step].row_to_rank);
    CHECK(rows(first[step]) == rows(more_ranks[step]));
    num_equal += rows(first[step]) == rows(other[step]) ? 1 : 0;
  }
  CHECK(num_equal < 10);
}

TEST_CASE("sequences begin anywhere within their requests, so that not all are new at once") {
  const std::vector<RequestRows> requests = numbered_requests(400);

  std::int64_t num_new = 0;
  for (const std::int64_t row : TraceBatches(requests, 400, 4, 5).batch().rows) {
    num_new += row % 1000 == 0 ? 1 : 0;
  }

  // One of n rows is the first: sum over requests of 1/n is about 56 with a deviation of about 7.
  CHECK(num_new > 20);
  CHECK(num_new < 100);
}

TEST_CASE("a batch may have all requests, but not more") {
  const std::vector<RequestRows> requests = numbered_requests(6);

  CHECK(steps_of(TraceBatches(requests, 6, 2, 0), 50).back().rows.size() == 6);
  expect_error(ExitCode::usage, {"a batch of 7", "offers 6"}, [&] { TraceBatches(requests, 7, 2, 0); });
}

TEST_CASE("random numbers are those of the standard's engine, and within their bound") {
  metro::RandomNumbers random(5489);  // the default seed, whose 10000th number the standard states
  for (int i = 0; i < 9999; ++i) {
    random.below(std::uint64_t{1} << 63);
  }
  CHECK(random.below(std::uint64_t{1} << 63) == 9981545732273789042ULL % (std::uint64_t{1} << 63));

  std::vector<int> hits(7, 0);
  for (int i = 0; i < 7000; ++i) {
    ++hits[random.below(7)];
  }
  CHECK(*std::min_element(hits.begin(), hits.end()) > 850);
  CHECK(random.below(1) == 0);
}
