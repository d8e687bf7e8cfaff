// Memory of a node as a window of MPI.
#pragma once

#include "transport/node_memory.hpp"
#include "transport/transport.hpp"

#include <mpi.h>

#include <cstdint>

namespace metro {

class MpiNodeMemory final : public NodeMemory {
 public:
  // Collective over the ranks of `node`, which becomes this object's; `transport` must outlive it. Blocks in MPI
  // without a time-out: all ranks are to come straight from a barrier.
  MpiNodeMemory(Transport& transport, MPI_Comm node, std::int64_t num_bytes);
  ~MpiNodeMemory() override;
  MpiNodeMemory(const MpiNodeMemory&) = delete;
  MpiNodeMemory& operator=(const MpiNodeMemory&) = delete;

  // Takes this rank's part of the pages now, so that a file system without room is an error here and no signal later.
  // Throws Error(machine). Kernels before Linux 5.14 cannot: there nothing happens.
  void take_own_pages();

  std::span<std::byte> bytes() const override { return bytes_; }
  std::int64_t rank_on_node() const override { return rank_; }
  std::int64_t num_ranks_on_node() const override { return num_ranks_; }
  void publish() override;

 private:
  Transport* transport_;
  MPI_Comm node_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::span<std::byte> bytes_;
  std::int64_t rank_ = 0, num_ranks_ = 1;
  int exceptions_at_start_;
};

}  // namespace metro
