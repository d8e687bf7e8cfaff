#include "transport/peers.hpp"

#include "base/error.hpp"
#include "transport/host_name.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace metro {

namespace {

// Cheap. A process that has ended, but that its parent has not asked for yet, still counts.
bool is_gone(std::int64_t process) {
  return ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

// From /proc/PROCESS/stat: "PROCESS (NAME) STATE ...", where the name may hold any character.
ProcessState state_of(std::int64_t process) {
  const std::string path = "/proc/" + std::to_string(process) + "/stat";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return is_gone(process) ? ProcessState::gone : ProcessState::unknown;
  }
  std::array<char, 512> text{};
  const ssize_t num_bytes = ::read(file, text.data(), text.size());
  ::close(file);
  const std::string_view line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(num_bytes, 0)));
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= line.size()) {
    return ProcessState::unknown;
  }
  switch (line[name_end + 2]) {
    case 'Z':
    case 'X':
      return ProcessState::gone;
    case 'T':
    case 't':
      return ProcessState::stopped;
    default:
      return ProcessState::running;
  }
}

}  // namespace

PeerProcess own_process() {
  PeerProcess own;
  host_name().copy(own.host.data(), own.host.size() - 1);
  own.process = ::getpid();
  struct stat status {};
  own.namespace_id = ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
  return own;
}

Peers::Peers(std::int64_t rank, std::vector<PeerProcess> peers) : rank_(rank), peers_(std::move(peers)) {
  METRO_REQUIRE(rank >= 0 && rank < size(), std::to_string(rank));
  const PeerProcess& own = peers_[static_cast<std::size_t>(rank)];
  for (std::int64_t r = 0; r < size(); ++r) {
    const PeerProcess& peer = peers_[static_cast<std::size_t>(r)];
    const bool is_here = peer.host == own.host && peer.namespace_id == own.namespace_id && own.namespace_id != 0;
    if (r != rank && is_here && !is_gone(peer.process)) {
      watched_.push_back(r);
    }
  }
}

ProcessState Peers::state(std::int64_t rank) const {
  return std::ranges::binary_search(watched_, rank) ? state_of(process_of(rank)) : ProcessState::unknown;
}

std::optional<std::int64_t> Peers::first_gone() const {
  const auto found = std::ranges::find_if(watched_, [&](std::int64_t r) { return is_gone(process_of(r)); });
  return found == watched_.end() ? std::nullopt : std::optional(*found);
}

bool Peers::is_first_alive() const {
  return std::ranges::all_of(watched_, [&](std::int64_t r) { return r > rank_ || is_gone(process_of(r)); });
}

}  // namespace metro
