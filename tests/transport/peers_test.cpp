// What is known of the processes of other ranks.
#include "transport/peers.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <csignal>

using metro::own_process;
using metro::PeerProcess;
using metro::Peers;
using metro::ProcessState;

namespace {

// A process of this host that waits for signals.
pid_t start_child() {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGTERM, SIG_DFL);
    while (true) {
      ::pause();
    }
  }
  return child;
}

PeerProcess peer(pid_t process) {
  PeerProcess found = own_process();
  found.process = process;
  return found;
}

}  // namespace

TEST_CASE("of the processes of this host it is known whether they run, are stopped or gone") {
  const pid_t child = start_child();
  const Peers peers(0, {own_process(), peer(child)});
  int status = 0;

  CHECK(peers.state(1) == ProcessState::running);
  CHECK_FALSE(peers.first_gone().has_value());
  ::kill(child, SIGSTOP);
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  CHECK(peers.state(1) == ProcessState::stopped);
  CHECK_FALSE(peers.first_gone().has_value());
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(peers.state(1) == ProcessState::gone);
  CHECK(peers.first_gone() == 1);
}

TEST_CASE("the first that lives is the lowest rank of this host whose process is there") {
  const pid_t child = start_child();
  PeerProcess elsewhere = own_process();
  elsewhere.host = {"elsewhere"};
  const Peers peers(2, {elsewhere, peer(child), own_process()});

  const bool first_while_child_lives = peers.is_first_alive();
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);

  CHECK_FALSE(first_while_child_lives);
  CHECK(peers.is_first_alive());
}

TEST_CASE("nothing is known of processes of other hosts and other namespaces") {
  PeerProcess other_host = own_process();
  other_host.host = {"elsewhere"};
  PeerProcess other_namespace = own_process();
  ++other_namespace.namespace_id;
  const Peers peers(0, {own_process(), other_host, other_namespace});

  CHECK(peers.state(1) == ProcessState::unknown);
  CHECK(peers.state(2) == ProcessState::unknown);
  CHECK(peers.host(1) == "elsewhere");
}

TEST_CASE("a process that cannot be seen from the first is not taken for one that has ended") {
  const pid_t child = start_child();
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);

  const Peers peers(0, {own_process(), peer(child)});

  CHECK(peers.state(1) == ProcessState::unknown);
  CHECK_FALSE(peers.first_gone().has_value());
}
