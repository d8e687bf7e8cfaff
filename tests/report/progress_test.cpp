#include "report/progress.hpp"

#include "base/file.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <vector>

using metro::progress_line;
using metro::ProgressState;

namespace {

ProgressState halfway() {
  ProgressState state;
  state.elapsed_s = 100.0;
  state.num_done = 12;
  state.num_requests = 24;
  state.input_ended = true;
  state.num_running = 8;
  state.num_generated = 5000;
  return state;
}

// What Progress prints for these states.
std::string printed(bool is_terminal, const std::vector<ProgressState>& states) {
  const metro::test::ScratchFolder scratch;
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(scratch.file("out").c_str(), "w"),
                                                              std::fclose);
    REQUIRE(out != nullptr);
    metro::Progress progress(out.get(), is_terminal);
    for (const ProgressState& state : states) {
      progress.update(state);
    }
    progress.finish();
  }
  return metro::read_file(scratch.file("out"), metro::ExitCode::input);
}

}  // namespace

TEST_CASE("progress says how many requests are done, how fast it goes and how long it takes") {
  CHECK(progress_line(halfway(), false) == "12/24 requests, 8 running, 50 tokens/s, 1:40 left");
  CHECK(progress_line(halfway(), true) ==
        "[############............]  50% 12/24 requests, 8 running, 50 tokens/s, 1:40 left");
}

TEST_CASE("before the first completion nothing is said about the time that is left") {
  ProgressState state = halfway();
  state.num_done = 0;

  CHECK(progress_line(state, false) == "0/24 requests, 8 running, 50 tokens/s");
}

TEST_CASE("while the input is being read the number of requests is estimated or left open") {
  ProgressState state = halfway();
  state.input_ended = false;

  CHECK(progress_line(state, true) == "12/24+ requests, 8 running, 50 tokens/s");
  state.input_share = 0.25;
  CHECK(progress_line(state, false) == "12/about 96 requests, 8 running, 50 tokens/s, 11:40 left");
}

TEST_CASE("long times are shown with hours") {
  ProgressState state = halfway();
  state.elapsed_s = 7200.0;

  CHECK_THAT(progress_line(state, false), Catch::Matchers::EndsWith(", 2:00:00 left"));
}

TEST_CASE("a log gets a plain line per ten seconds") {
  ProgressState state = halfway();
  std::vector<ProgressState> states;
  for (int second = 1; second <= 35; ++second) {
    state.elapsed_s = second;
    states.push_back(state);
  }

  const std::string text = printed(false, states);

  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK_THAT(text, Catch::Matchers::StartsWith("  12/24 requests") && !Catch::Matchers::Contains("\r"));
}

TEST_CASE("a terminal gets one line that is rewritten, fits and is gone at the end") {
  ProgressState state = halfway();
  state.num_requests = 1'000'000'000'000;
  state.num_generated = 1'000'000'000'000'000;

  const std::string text = printed(true, {state});

  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.size() == std::string("\r\033[K").size() * 2 + 79);
  CHECK_THAT(text, Catch::Matchers::EndsWith("\r\033[K"));
  CHECK(printed(true, {}).empty());
}
