// One rank of a job of any size, in one process and without the others: what every rank does for all ranks can be run,
// measured and tested with a thousand of them. What "the others" send is made up by rules, so that replicated code goes
// on as in a job whose ranks all hold the same; nothing that depends on what they compute may be taken from it.
#pragma once

#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace metro {

// Writes what rank `from` sends into `message`, whose size is what this rank expects. own: what this rank sends, to
// itself in an all-to-all. phase: current_phase() of the process.
using PretendedMessage = std::function<void(const char* phase, std::int64_t from, std::span<const std::byte> own,
                                            std::span<std::byte> message)>;

struct PretendedJob {
  std::int64_t size = 1;            // ranks
  std::int64_t rank = 0;            // the one that this process is
  std::int64_t ranks_per_node = 1;  // who share a node's memory
  // Where empty, others send what this rank sends (to itself), and a message of another size than that is a Bug. A
  // broadcast from another rank has nothing of its own to copy: it is a Bug unless there is a rule.
  PretendedMessage gathered = {};
  PretendedMessage exchanged = {};
  std::function<void(const char* phase, std::int64_t root, std::span<std::byte> data)> broadcast = {};
};

// Reductions give what they would if all ranks had this rank's values: the maximum is the value itself, the sum `size`
// times it. Memory of a node is zero where other ranks would have written. bytes_sent() counts as in a real job.
std::unique_ptr<Transport> make_pretend_transport(PretendedJob job);

}  // namespace metro
