// A part of a test that ends its process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <array>
#include <string>

namespace metro::test {

struct ChildEnd {
  int status = -1;     // of waitpid
  std::string errors;  // what it wrote to stderr
};

// Runs `work` in a child, which ends with exit code 0 when that returns.
template <class F>
ChildEnd end_of_child(const F& work) {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    work();
    ::_exit(0);
  }
  ::close(pipe[1]);
  ChildEnd end;
  std::array<char, 4096> piece{};
  for (ssize_t num_bytes = 0; (num_bytes = ::read(pipe[0], piece.data(), piece.size())) > 0;) {
    end.errors.append(piece.data(), static_cast<std::size_t>(num_bytes));
  }
  ::close(pipe[0]);
  REQUIRE(::waitpid(child, &end.status, 0) == child);
  return end;
}

}  // namespace metro::test
