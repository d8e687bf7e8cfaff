// The transport over MPI, host memory. Made by make_mpi_transport() (transport.hpp); this header is for its own source
// and its tests, which set piece_bytes low so that messages are split, and ranks_per_node so that one machine stands
// for several.
//
// Every operation is started without blocking and then polled, so that each wait has an end (wait_all). MPI counts are
// int: a message longer than piece_bytes travels in pieces.
#pragma once

#include "transport/mpi_roll_call.hpp"
#include "transport/node_board.hpp"
#include "transport/node_layout.hpp"
#include "transport/node_messages.hpp"
#include "transport/peers.hpp"
#include "transport/transport.hpp"

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace metro {

class MpiTransport final : public Transport {
 public:
  static constexpr std::int64_t default_piece_bytes = std::int64_t{1} << 30;

  // Collective. timeout_s > 0; 0 < piece_bytes <= default_piece_bytes; ranks_per_node: as if nodes had no more, 0: as
  // they are. A failing MPI call, here and in all methods, is Error(machine); a message of another length than
  // announced is a Bug.
  explicit MpiTransport(double timeout_s, std::int64_t piece_bytes = default_piece_bytes,
                        std::int64_t ranks_per_node = 0);
  // Waits for the others and gives the communicators back, unless an exception is unwinding (that is collective, and
  // others may not come).
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }
  std::string name() const override { return "mpi"; }

  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override;
  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override;
  void exchange_messages(std::span<const std::span<const std::byte>> to_ranks,
                         std::span<const std::span<std::byte>> from_ranks, const char* operation) override;
  void broadcast(std::span<std::byte> data, std::int64_t root) override;
  void all_reduce_max(std::span<std::int64_t> values) override;
  void all_reduce_sum(std::span<std::int64_t> values) override;
  void barrier() override;
  std::unique_ptr<NodeMemory> allocate_node_memory(std::int64_t num_bytes) override;
  std::int64_t node_memory_room() const override;
  bool prepare_two_levels(std::int64_t num_bytes) override;
  void set_levels(Levels levels) override;
  void watch(const char* operation, bool begins) override;

 private:
  // A receive that was started, to be compared with what came.
  struct Announced {
    std::size_t request = 0;  // its place in requests_
    std::int64_t source = 0;
    int bytes = 0;
  };

  void set_up();
  void set_up_flags();
  // The next request to be started; wait_all() waits for all of them.
  MPI_Request& new_request();
  void start_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                    std::span<const std::int64_t> recv_bytes);
  void start_broadcast(std::span<std::byte> data, std::int64_t root);
  // With the tag of the operation.
  void start_receive(std::span<std::byte> data, std::int64_t source);
  void start_send(std::span<const std::byte> data, std::int64_t destination);
  void reduce(std::span<std::int64_t> values, MPI_Op operation);
  // The messages to and from the ranks for which goes_to and comes_from hold, and the own one.
  using RankFilter = std::function<bool(std::int64_t rank)>;
  void start_messages(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                      std::span<std::byte> recv, std::span<const std::int64_t> recv_bytes, const RankFilter& goes_to,
                      const RankFilter& comes_from);
  void take_next_tag();

  // mpi_two_levels.cpp.
  std::vector<std::int64_t> find_nodes(std::int64_t& most_ranks);
  template <class From, class To>
  void start_between_nodes(const From& from, const To& to);
  void finish_on_node(const char* operation);
  void all_gather_by_nodes(std::span<const std::byte> send, std::span<std::byte> recv,
                           std::span<const std::int64_t> recv_bytes);
  void all_to_all_by_nodes(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                           std::span<std::byte> recv, std::span<const std::int64_t> recv_bytes);
  // A wait, as far as it has got.
  struct Wait {
    std::chrono::steady_clock::time_point last;  // look
    double waited_s = 0.0;
    double after_signal_waited_s = 0.0;
    double next_look_s = 0.0;     // at the other ranks
    double gone_noticed_s = 0.0;  // when a process was found gone; 0: none
    bool may_speak = true;        // in a roll call; not if this process was stopped meanwhile
  };

  // mpi_waiting.cpp. wait_until() ends when is_done() holds. After timeout_s, some seconds after SIGTERM, and when a
  // process is gone, it ends the job instead: look() does. wait_all(), for operations with one wait, waits for all
  // requests.
  void wait_all(const char* operation);
  void wait_for_requests(const char* operation);
  void wait_until(const char* operation, const std::function<bool()>& is_done);
  void begin_wait();
  void look(const char* operation);
  bool test_all();
  void require_announced_lengths();
  void look_at_peers(const char* operation);
  [[noreturn]] void give_up(const char* operation, const std::string& why);

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm roll_call_comm_ = MPI_COMM_NULL;
  std::int64_t rank_ = 0;
  std::int64_t size_ = 1;
  double timeout_s_;
  std::int64_t piece_bytes_;
  std::int64_t ranks_per_node_;
  int exceptions_at_start_;
  int tag_ = 0;  // of the operation at work
  std::unique_ptr<const Peers> peers_;
  std::unique_ptr<MpiRollCall> roll_call_;
  std::unique_ptr<NodeMemory> flags_;  // [size] of bytes: 1 if that rank, of this node, has said why it ends. Or null.
  std::int64_t num_operations_ = 0;
  Wait wait_;  // the current one
  Levels levels_ = Levels::one;
  std::optional<const NodeLayout> layout_;  // this and the next two: once two levels are possible
  std::optional<NodeBoard> board_;
  std::optional<NodeMessages> node_messages_;
  // Kept between calls so that nothing is allocated in the step loop.
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<Announced> announced_;
  std::vector<int> counts_;         // [size]
  std::vector<int> displacements_;  // [size]
  // [size], with two levels: where the message of, or to, a rank begins in send, recv and the node's memory.
  std::vector<std::int64_t> send_offsets_, recv_offsets_, area_offsets_;
};

}  // namespace metro
