// The process behind a socket: what it inherits, that it ends, and that nothing of it is left.
#include "chat/helper_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>

using metro::HelperFailure;
using metro::HelperProcess;
using Kind = metro::HelperFailure::Kind;

namespace {

// Answers every message by the value of a Python expression of `message`, a text.
std::vector<std::string> answering(const std::string& expression, const std::string& first = "") {
  return {"python3", "-c",
          "import os, signal, sys, time\n" + first +
              "\nstream = os.fdopen(os.dup(0), 'rb')\n"
              "while True:\n"
              "  head = stream.read(8)\n"
              "  if len(head) < 8: break\n"
              "  message = stream.read(int.from_bytes(head, 'little')).decode()\n"
              "  answer = str(" +
              expression +
              ").encode()\n"
              "  os.write(0, len(answer).to_bytes(8, 'little') + answer)\n"};
}

bool is_gone(pid_t id) {
  return ::kill(id, 0) != 0 && errno == ESRCH;
}

Kind kind_of(HelperProcess& helper, const std::string& message, double patience_s) {
  try {
    helper.ask(message, patience_s);
  } catch (const HelperFailure& failure) {
    return failure.kind;
  }
  FAIL("it answered");
  return Kind::ended;
}

}  // namespace

TEST_CASE("messages of any length are answered in turn, and the process is gone with its object") {
  pid_t id = -1;
  {
    HelperProcess helper(answering("message[::-1]"), 1 << 24);
    id = helper.id();
    CHECK(helper.ask("", 20.0).empty());
    CHECK(helper.ask("abc", 20.0) == "cba");
    CHECK(helper.ask(std::string(5'000'000, 'x') + "y", 20.0) == "y" + std::string(5'000'000, 'x'));
    CHECK(!is_gone(id));
  }

  CHECK(is_gone(id));
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // no child is left, nor its remains
  CHECK(errno == ECHILD);
}

TEST_CASE("a helper inherits no descriptor but its own three, and no signal that stops a run ends it") {
  const int kept = ::open("/dev/null", O_RDONLY);  // without FD_CLOEXEC, as libraries open files
  REQUIRE(kept >= 0);
  HelperProcess helper(answering("sorted(map(int, os.listdir('/proc/self/fd')))", ""), 1 << 20);

  // 3 and 4: the copy of the socket and the folder that is being listed.
  CHECK(helper.ask("", 20.0) == "[0, 1, 2, 3, 4]");
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    REQUIRE(::kill(helper.id(), signal) == 0);
  }
  CHECK(helper.ask("", 20.0) == "[0, 1, 2, 3, 4]");
  ::close(kept);
}

TEST_CASE("a helper that hangs, dies or does not take its message is ended") {
  HelperProcess hanging(answering("time.sleep(100)"), 1000);
  HelperProcess dying(answering("os._exit(4)"), 1000);
  HelperProcess deaf({"sleep", "100"}, 1000);
  HelperProcess gone(answering("message"), 1000);
  HelperProcess verbose(answering("'x' * 1001"), 1000);
  const std::vector<pid_t> ids = {hanging.id(), dying.id(), deaf.id(), gone.id(), verbose.id()};
  REQUIRE(gone.ask("x", 20.0) == "x");
  REQUIRE(::kill(gone.id(), SIGKILL) == 0);

  CHECK(kind_of(hanging, "x", 0.3) == Kind::too_slow);
  CHECK(kind_of(dying, "x", 20.0) == Kind::ended);
  CHECK(kind_of(deaf, std::string(10'000'000, 'x'), 0.3) == Kind::too_slow);
  CHECK(kind_of(gone, "x", 20.0) == Kind::ended);
  CHECK(kind_of(verbose, "x", 20.0) == Kind::not_an_answer);
  for (const pid_t id : ids) {
    CHECK(is_gone(id));
  }
}

TEST_CASE("a helper that does not end when its socket closes is killed") {
  pid_t id = -1;
  const auto begin = std::chrono::steady_clock::now();
  {
    HelperProcess helper({"sleep", "100"}, 1000);
    id = helper.id();
  }

  CHECK(is_gone(id));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(50));
}

TEST_CASE("a program that cannot be started is told from one that does not exist") {
  const auto kind = [](const std::string& program) {
    try {
      HelperProcess({program}, 10);
    } catch (const HelperFailure& failure) {
      return failure.kind;
    }
    return Kind::ended;
  };

  CHECK(kind("no-such-program-anywhere") == Kind::not_found);
  CHECK(kind("/etc/passwd") == Kind::not_started);
}
