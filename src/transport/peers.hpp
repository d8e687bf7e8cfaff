// The processes behind the ranks: their hosts, and of those on this host whether they still live.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metro {

// What ranks tell each other about their process. Sent as bytes.
struct PeerProcess {
  std::array<char, 64> host{};  // with a zero at the end
  std::int64_t process = 0;
  std::uint64_t namespace_id = 0;  // numbers of processes mean the same within one namespace only
};

PeerProcess own_process();

enum class ProcessState { unknown, running, stopped, gone };

class Peers {
 public:
  // peers: of each rank, [size]. All processes must be alive now: those that cannot be seen are not watched.
  Peers(std::int64_t rank, std::vector<PeerProcess> peers);

  std::int64_t size() const { return static_cast<std::int64_t>(peers_.size()); }
  std::string host(std::int64_t rank) const { return peers_[static_cast<std::size_t>(rank)].host.data(); }
  // unknown: of a rank of another host, or where the system does not tell.
  ProcessState state(std::int64_t rank) const;

  // The lowest rank whose process is known to have ended.
  std::optional<std::int64_t> first_gone() const;
  // Whether this is the lowest rank that lives among those of this host that are watched.
  bool is_first_alive() const;

 private:
  std::int64_t process_of(std::int64_t rank) const { return peers_[static_cast<std::size_t>(rank)].process; }

  std::int64_t rank_;
  std::vector<PeerProcess> peers_;
  std::vector<std::int64_t> watched_;  // ranks of this host without the own one, in ascending order
};

}  // namespace metro
