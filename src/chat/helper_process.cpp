#include "chat/helper_process.hpp"

#include "base/error.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>

namespace metro {

namespace {

using Kind = HelperFailure::Kind;

constexpr std::size_t length_bytes = 8;
constexpr double patience_at_end_s = 1.0;

std::string reason_of(int error) {
  return std::strerror(error);
}

// What the calls of posix_spawn return; those that prepare it fail for want of memory only.
void require_prepared(int result) {
  if (result != 0) {
    throw HelperFailure(Kind::not_started, reason_of(result));
  }
}

// How the new process begins: descriptors and signals.
class SpawnSettings {
 public:
  SpawnSettings(int input, int output) {
    require_prepared(::posix_spawn_file_actions_init(&actions_));
    require_prepared(::posix_spawnattr_init(&attributes_));
    require_prepared(::posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO));
    require_prepared(::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO));
    require_prepared(::posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO));
    require_prepared(::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1));
    sigset_t blocked{};
    ::sigemptyset(&blocked);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
      ::sigaddset(&blocked, signal);
    }
    require_prepared(::posix_spawnattr_setsigmask(&attributes_, &blocked));
    require_prepared(::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK));
  }
  ~SpawnSettings() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

std::string end_of(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

HelperProcess::HelperProcess(const std::vector<std::string>& command, std::int64_t most_bytes)
    : most_bytes_(most_bytes) {
  METRO_REQUIRE(!command.empty() && most_bytes >= 0, fmt::format("{} words, {} bytes", command.size(), most_bytes));
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw HelperFailure(Kind::not_started, fmt::format("socketpair: {}", reason_of(errno)));
  }
  socket_ = ends[0];
  try {
    printed_ = ::memfd_create("metro-helper", MFD_CLOEXEC);
    if (printed_ < 0) {
      throw HelperFailure(Kind::not_started, fmt::format("memfd_create: {}", reason_of(errno)));
    }
    spawn(command, ends[1]);
  } catch (...) {
    ::close(ends[0]);
    ::close(ends[1]);
    if (printed_ >= 0) {
      ::close(printed_);
    }
    throw;
  }
  ::close(ends[1]);
}

void HelperProcess::spawn(const std::vector<std::string>& command, int their_end) {
  std::vector<char*> words;
  for (const std::string& word : command) {
    words.push_back(const_cast<char*>(word.c_str()));  // posix_spawn does not change them
  }
  words.push_back(nullptr);
  const SpawnSettings settings(their_end, printed_);
  const int failure =
      ::posix_spawnp(&id_, words.front(), settings.actions(), settings.attributes(), words.data(), environ);
  if (failure != 0) {
    id_ = -1;
    throw HelperFailure(failure == ENOENT ? Kind::not_found : Kind::not_started,
                        fmt::format("{}: {}", command.front(), reason_of(failure)));
  }
}

HelperProcess::~HelperProcess() {
  ::close(socket_);
  const auto begin = std::chrono::steady_clock::now();
  int status = 0;
  while (id_ > 0 && ::waitpid(id_, &status, WNOHANG) == 0) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (waited.count() > patience_at_end_s) {
      kill_and_reap();
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ::close(printed_);
}

// Returns how it ended, which it may have done by itself before.
int HelperProcess::kill_and_reap() {
  int status = 0;
  if (id_ > 0) {
    ::kill(id_, SIGKILL);
    while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
  }
  return status;
}

// The last line of what it printed.
std::string HelperProcess::last_words() const {
  std::array<char, 2048> tail{};
  const off_t size = ::lseek(printed_, 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(tail.size()));
  const ssize_t num_read = ::pread(printed_, tail.data(), tail.size(), begin);
  std::string_view text(tail.data(), static_cast<std::size_t>(std::max<ssize_t>(0, num_read)));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return std::string(text.substr(text.rfind('\n') + 1));
}

void HelperProcess::fail_at_end() {
  // It has closed its end: give it the time to end by itself, which tells more.
  int status = 0;
  for (int turn = 0; turn < 500; ++turn) {
    if (::waitpid(id_, &status, WNOHANG) == id_) {
      id_ = -1;
      const std::string words = last_words();
      throw HelperFailure(Kind::ended, words.empty() ? end_of(status) : fmt::format("{}: {}", end_of(status), words));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  kill_and_reap();
  throw HelperFailure(Kind::ended, "does not listen any more");
}

void HelperProcess::wait_until(short events, double& left_s) {
  // In short waits, each of which counts as no longer than it is: what a suspended job missed is nobody's fault.
  constexpr double longest_step_s = 0.25;
  while (left_s > 0.0) {
    const double step_s = std::min(left_s, longest_step_s);
    pollfd state{socket_, events, 0};
    const auto begin = std::chrono::steady_clock::now();
    const int num_ready = ::poll(&state, 1, std::max(1, static_cast<int>(1000.0 * step_s)));
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    left_s -= std::min(step_s, waited.count());
    if (num_ready > 0) {
      return;
    }
    if (num_ready < 0 && errno != EINTR) {
      const int failure = errno;
      kill_and_reap();
      throw HelperFailure(Kind::ended, fmt::format("poll: {}", reason_of(failure)));
    }
  }
  kill_and_reap();
  throw HelperFailure(Kind::too_slow, "does not answer");
}

void HelperProcess::send(std::string_view bytes, double& left_s) {
  while (!bytes.empty()) {
    const ssize_t num_sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (num_sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(num_sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_until(POLLOUT, left_s);
    } else if (errno != EINTR) {
      fail_at_end();
    }
  }
}

void HelperProcess::receive(char* bytes, std::size_t count, double& left_s) {
  while (count > 0) {
    const ssize_t num_read = ::recv(socket_, bytes, count, MSG_DONTWAIT);
    if (num_read > 0) {
      bytes += num_read;
      count -= static_cast<std::size_t>(num_read);
    } else if (num_read < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_until(POLLIN, left_s);
    } else if (num_read == 0 || errno != EINTR) {
      fail_at_end();
    }
  }
}

std::string HelperProcess::ask(std::string_view message, double patience_s) {
  METRO_REQUIRE(id_ > 0, "the helper has failed before");
  double left_s = patience_s;
  std::array<char, length_bytes> head{};
  for (std::size_t i = 0; i < length_bytes; ++i) {
    head[i] = static_cast<char>((message.size() >> (8 * i)) & 0xFFU);
  }
  send({head.data(), head.size()}, left_s);
  send(message, left_s);

  receive(head.data(), head.size(), left_s);
  std::uint64_t size = 0;
  for (std::size_t i = length_bytes; i-- > 0;) {
    size = (size << 8U) | static_cast<unsigned char>(head[i]);
  }
  if (size > static_cast<std::uint64_t>(most_bytes_)) {
    kill_and_reap();
    throw HelperFailure(Kind::not_an_answer,
                        fmt::format("answers with {} bytes, at most {} are expected", size, most_bytes_));
  }
  std::string answer(size, '\0');
  receive(answer.data(), answer.size(), left_s);
  return answer;
}

}  // namespace metro
