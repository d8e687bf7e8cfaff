// How ranks exchange bytes. Algorithms see this interface, never MPI or NCCL. Every method is collective: all ranks
// call the same methods in the same order, also with zero bytes. Sizes are 64-bit; large messages are split inside.
// Every wait is bounded: after the time-out the job is ended with a message that names rank, host and phase.
#pragma once

#include "base/last_words.hpp"
#include "transport/node_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace metro {

// How messages get to other nodes.
enum class Levels {
  one,  // each rank sends its own to each reader
  two   // they meet in the memory of their node, and one rank sends them to a node as one message
};

// What Transport::watch() is told where a rank waits for its own device alone.
inline constexpr const char* work_of_device = "work of the device";

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::int64_t rank() const = 0;
  virtual std::int64_t size() const = 0;
  virtual std::string name() const = 0;  // "self", "mpi"

  // recv = the messages of all ranks in rank order; the message of rank r has recv_bytes[r] bytes on every rank.
  virtual void all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                          std::span<const std::int64_t> recv_bytes) = 0;

  // send holds the messages to rank 0, 1, ... of send_bytes[r] bytes each, recv those from rank 0, 1, ...
  // send_bytes[r] on rank s equals recv_bytes[s] on rank r.
  virtual void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                          std::span<std::byte> recv, std::span<const std::int64_t> recv_bytes) = 0;

  // data of rank `root` to all; same size on all ranks.
  virtual void broadcast(std::span<std::byte> data, std::int64_t root) = 0;

  // Element-wise over ranks; same length on all ranks.
  virtual void all_reduce_max(std::span<std::int64_t> values) = 0;
  virtual void all_reduce_sum(std::span<std::int64_t> values) = 0;

  virtual void barrier() = 0;

  // Memory that the ranks of each node share; the same size on all ranks. Its content is unspecified. Throws
  // AgreedError (machine) if a node has no room for it: ask node_memory_room() before.
  virtual std::unique_ptr<NodeMemory> allocate_node_memory(std::int64_t num_bytes) = 0;

  // Bytes that allocate_node_memory() can give on this rank's node now; 0 if it cannot share memory. Not collective.
  virtual std::int64_t node_memory_room() const = 0;

  // Collective. Makes Levels::two possible: with num_bytes of node memory for messages to and from other nodes; what
  // does not fit into a node's share of them goes as with Levels::one. False, and nothing is done, where there is only
  // one node, or only one rank on each. Throws AgreedError (machine) if a node has no room.
  virtual bool prepare_two_levels(std::int64_t /*num_bytes*/) { return false; }
  // For all_gather() and all_to_all() from now on; the same on all ranks. At first one; two only once it is possible.
  virtual void set_levels(Levels /*levels*/) {}

  // to_ranks[r] goes to rank r, where it is from_ranks[this rank], for all r but this one. [size] each; empty messages
  // are left out. Only MPI touches them, by sends and receives: they may be memory of a device where it takes that
  // (mpi_device_memory.hpp). operation: a literal, for messages.
  virtual void exchange_messages(std::span<const std::span<const std::byte>> to_ranks,
                                 std::span<const std::span<std::byte>> from_ranks, const char* operation) = 0;

  // For a wait that is no wait of these methods, since it is for a device: to be called again and again. Ends the job
  // when a wait here would: after the time-out, when a process is gone, when others have given up. operation: a
  // literal, for messages (work_of_device, "all-gather by NCCL"); begins: whether this is the first call of a wait. Not
  // collective.
  virtual void watch(const char* /*operation*/, bool /*begins*/) {}

  // What this rank is doing now, for messages ("combine"). Not collective.
  void set_phase(const char* phase) { set_current_phase(phase); }

  // Bytes this rank sent to other ranks so far, counted as if every message went straight from its owner to each
  // reader: what this rank gathered, broadcast as root or reduced counts size - 1 times.
  std::int64_t bytes_sent() const { return bytes_sent_; }
  // What this rank sent to others by another way, which is to count as well.
  void count_sent(std::int64_t num_bytes) { bytes_sent_ += num_bytes; }

 protected:
  std::int64_t bytes_sent_ = 0;
};

// One rank, no MPI. timeout_s: of watch(), the only wait there is.
std::unique_ptr<Transport> make_self_transport(double timeout_s = std::numeric_limits<double>::infinity());

// MPI_COMM_WORLD (duplicated), host memory. MPI must be initialised (mpi_launch/world.hpp) and outlive it.
std::unique_ptr<Transport> make_mpi_transport(double timeout_s);

}  // namespace metro
