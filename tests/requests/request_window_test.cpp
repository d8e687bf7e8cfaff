#include "requests/request_window.hpp"

#include "base/file.hpp"
#include "requests/reader_harness.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <array>
#include <random>

using metro::Rejection;
using metro::RequestReader;
using metro::RequestWindow;
using metro::RequestWindows;
using metro::test::ScratchFolder;
using metro::test::small_defaults;
using Ids = std::vector<std::int64_t>;

namespace {

// Windows of these lines; refused ones are kept in `rejected`.
struct Fixture {
  explicit Fixture(const std::string& lines)
      : reader(written(lines), small_defaults(), nullptr),
        windows(reader, [this](const Rejection& rejection) { rejected.push_back(rejection.custom_id); }) {}
  std::string written(const std::string& lines) const {
    metro::write_file_atomically(folder.file("in"), lines);
    return folder.file("in");
  }
  ScratchFolder folder;
  std::vector<std::string> rejected;
  RequestReader reader;
  RequestWindows windows;
};

std::string line_at(double arrival_s) {
  return "{\"prompt\": [1], \"arrival_s\": " + std::to_string(arrival_s) + "}\n";
}

Ids ids_of(const RequestWindow& window) {
  Ids ids;
  for (const auto& accepted : window.lines) {
    ids.push_back(accepted.samples.front().id);
  }
  return ids;
}

const std::string plain = "{\"prompt\": [1]}\n";

}  // namespace

TEST_CASE("without arrival times windows are filled in the order of the input until it ends") {
  Fixture fixture(plain + plain + plain + "bad\n" + plain + plain);

  const RequestWindow first = fixture.windows.take(0.0, 2, 0.0);
  const RequestWindow second = fixture.windows.take(0.0, 2, 0.0);
  const RequestWindow third = fixture.windows.take(0.0, 2, 0.0);

  CHECK(ids_of(first) == Ids{0, 1});
  CHECK(ids_of(second) == Ids{2, 3});
  CHECK(ids_of(third) == Ids{4});
  CHECK(!first.ended);
  CHECK(!second.ended);
  CHECK(third.ended);
  CHECK(fixture.rejected == std::vector<std::string>{"line-4"});
}

TEST_CASE("a request is handed out when it has arrived and not before") {
  Fixture fixture(line_at(0.0) + line_at(1.0) + line_at(1.0) + line_at(2.5));

  CHECK(ids_of(fixture.windows.take(0.0, 9, 0.0)) == Ids{0});
  CHECK(ids_of(fixture.windows.take(0.999, 9, 0.0)).empty());
  CHECK(ids_of(fixture.windows.take(1.0, 9, 0.0)) == Ids{1, 2});
  const RequestWindow early = fixture.windows.take(2.4, 9, 0.0);
  CHECK(early.lines.empty());
  CHECK(!early.ended);
  const RequestWindow last = fixture.windows.take(100.0, 9, 0.0);
  CHECK(ids_of(last) == Ids{3});
  CHECK(last.ended);
}

TEST_CASE("the samples of a line stay together in a window, which only they may exceed") {
  const std::string of_three = "{\"prompt\": [1], \"n\": 3, \"temperature\": 1}\n";
  Fixture fixture(plain + of_three + plain + of_three);

  CHECK(ids_of(fixture.windows.take(0.0, 2, 0.0)) == Ids{0, 1});
  CHECK(ids_of(fixture.windows.take(0.0, 4, 0.0)) == Ids{4, 5});
  CHECK(fixture.windows.take(0.0, 1, 0.0).ended);
}

TEST_CASE("whenever it is asked, requests come in order of arrival, none early, none late") {
  std::mt19937_64 random(5);
  std::exponential_distribution<double> gap(10.0);
  std::vector<double> arrivals;
  std::string lines;
  for (double time_s = 0.0; arrivals.size() < 200; time_s += gap(random)) {
    arrivals.push_back(std::stod(std::to_string(time_s)));
    lines += line_at(time_s);
  }
  Fixture fixture(lines);

  std::size_t num_taken = 0;
  for (double now_s = 0.0; num_taken < arrivals.size(); now_s += gap(random)) {
    for (const auto& accepted : fixture.windows.take(now_s, 1'000, 0.0).lines) {
      CHECK(accepted.samples.front().id == static_cast<std::int64_t>(num_taken));
      CHECK(arrivals[num_taken] <= now_s);
      ++num_taken;
    }
    const bool next_is_late = num_taken < arrivals.size() && arrivals[num_taken] <= now_s;
    CHECK(!next_is_late);
  }
}

TEST_CASE("the pause lasts until the next arrival, but no longer than is allowed") {
  Fixture fixture(line_at(0.0) + line_at(10.0));

  CHECK(fixture.windows.pause_s(0.0, 0.5) == 0.0);
  fixture.windows.take(0.0, 9, 0.0);
  CHECK(fixture.windows.pause_s(3.0, 0.5) == 0.5);
  CHECK(fixture.windows.pause_s(9.75, 0.5) == 0.25);
  CHECK(fixture.windows.pause_s(11.0, 0.5) == 0.0);
}

TEST_CASE("a run of bad lines is read in portions") {
  std::string lines;
  for (int i = 0; i < 25'000; ++i) {
    lines += "x\n";
  }
  Fixture fixture(lines + plain);

  CHECK(fixture.windows.take(0.0, 5, 0.0).lines.empty());
  CHECK(fixture.rejected.size() == 10'000);
  CHECK(!fixture.windows.take(0.0, 5, 0.0).ended);
  const RequestWindow last = fixture.windows.take(0.0, 5, 0.0);
  CHECK(ids_of(last) == Ids{0});
  CHECK(last.ended);
  CHECK(fixture.rejected.size() == 25'000);
}

TEST_CASE("from a pipe a window takes what is there") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  RequestReader reader("/dev/fd/" + std::to_string(ends[0]), small_defaults(), nullptr);
  RequestWindows windows(reader, [](const Rejection&) {});

  CHECK(windows.take(0.0, 9, 0.001).lines.empty());
  REQUIRE(::write(ends[1], (plain + plain).data(), 2 * plain.size()) > 0);
  const RequestWindow some = windows.take(0.0, 9, 0.0);
  CHECK(ids_of(some) == Ids{0, 1});
  CHECK(!some.ended);
  ::close(ends[1]);
  CHECK(windows.take(0.0, 9, 0.0).ended);
  ::close(ends[0]);
}
