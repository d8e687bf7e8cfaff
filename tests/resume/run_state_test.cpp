#include "resume/run_state.hpp"

#include "base/digest.hpp"
#include "base/file.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>
#include <limits>

using metro::Digest;
using metro::ExitCode;
using metro::FinishReason;
using metro::read_run_state;
using metro::RunState;
using metro::write_run_state;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

// Without waiting for the disk: these tests write hundreds of files.
void put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

RunState example() {
  RunState state;
  state.keys = {{"model.checkpoint", "abc"}, {"requests.input, file 1", std::string("a\0\n b", 5)}};
  state.part = 3;
  state.requests = {{{7, 0xFFFFFFFFFFFFFFFF},
                     {{{{5, -0.25F, {{5, -0.25F}, {6, -1.0F}}, 1}, {0, 0.0F, {}, -1}}, FinishReason::none},
                      {{{9, 0.0F, {}, -1}}, FinishReason::stop_string},
                      {{}, FinishReason::none}},
                     {{3, -std::numeric_limits<float>::infinity(), {}, -1}}},
                    {{std::int64_t{1} << 40, 0}, {{{{1, 0.0F, {}, -1}}, FinishReason::none}}, {}}};
  return state;
}

std::string content_of(const std::string& path) {
  return metro::read_file(path, ExitCode::input);
}

// A file with a right digest around `packed`.
void write_packed(const std::string& path, const std::string& packed) {
  const Digest digest = metro::digest_of(packed);
  std::string content = "metro-run-state 1\n";
  content.append(reinterpret_cast<const char*>(&digest), sizeof digest);
  put(path, content + packed);
}

constexpr std::size_t head_bytes = 26;

}  // namespace

TEST_CASE("a state comes back from its file as it was") {
  const ScratchFolder folder;

  write_run_state(folder.file("state"), {});
  CHECK(read_run_state(folder.file("state")) == RunState{});
  write_run_state(folder.file("state"), example());
  CHECK(read_run_state(folder.file("state")) == example());
}

TEST_CASE("a state that ends too early is refused wherever it ends") {
  const ScratchFolder folder;
  write_run_state(folder.file("state"), example());
  const std::string whole = content_of(folder.file("state"));

  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(folder.file("torn"), whole.substr(0, length));
    expect_error(ExitCode::input, {"cannot go on from", "/torn", "--overwrite"},
                 [&] { read_run_state(folder.file("torn")); });
  }
}

TEST_CASE("a state with any byte changed is refused") {
  const ScratchFolder folder;
  write_run_state(folder.file("state"), example());
  const std::string whole = content_of(folder.file("state"));

  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x01);
    put(folder.file("damaged"), damaged);
    expect_error(ExitCode::input, {"cannot go on from", "/damaged"}, [&] { read_run_state(folder.file("damaged")); });
  }
}

TEST_CASE("a state says what is wrong with it") {
  const ScratchFolder folder;
  write_run_state(folder.file("state"), example());
  std::string content = content_of(folder.file("state"));

  content.back() = static_cast<char>(content.back() ^ 1);
  put(folder.file("damaged"), content);
  expect_error(ExitCode::input, {"it is damaged: its content has the digest"},
               [&] { read_run_state(folder.file("damaged")); });
  put(folder.file("newer"), "metro-run-state 2\n01234567");
  expect_error(ExitCode::input, {"another version of the program"}, [&] { read_run_state(folder.file("newer")); });
  put(folder.file("other"), "{}");
  expect_error(ExitCode::input, {"it is no state of a run"}, [&] { read_run_state(folder.file("other")); });
  expect_error(ExitCode::input, {"cannot open", "/none"}, [&] { read_run_state(folder.file("none")); });
}

TEST_CASE("counts in a state that it has no bytes for take no memory, also with a digest that fits") {
  const ScratchFolder folder;
  write_run_state(folder.file("state"), example());
  const std::string packed = content_of(folder.file("state")).substr(head_bytes);
  std::int64_t num_refused = 0;

  for (std::size_t at = 0; at + sizeof(std::int64_t) <= packed.size(); ++at) {
    for (const std::int64_t value :
         {std::numeric_limits<std::int64_t>::max(), std::int64_t{-1}, std::int64_t{1} << 40}) {
      std::string hostile = packed;
      std::memcpy(hostile.data() + at, &value, sizeof value);
      write_packed(folder.file("hostile"), hostile);
      try {
        read_run_state(folder.file("hostile"));
      } catch (const metro::Error& error) {
        ++num_refused;
        CHECK(error.exit_code() == ExitCode::input);
      }
    }
  }

  CHECK(num_refused > 100);
  for (std::size_t length = 0; length < packed.size(); ++length) {
    write_packed(folder.file("hostile"), packed.substr(0, length));
    expect_error(ExitCode::input, {"it is damaged"}, [&] { read_run_state(folder.file("hostile")); });
  }
  write_packed(folder.file("hostile"), packed + "x");
  expect_error(ExitCode::input, {"1 bytes behind the state"}, [&] { read_run_state(folder.file("hostile")); });
}
