#include "transport/mpi_node_memory.hpp"

#include "base/deadline.hpp"
#include "transport/agree.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_transport.hpp"

#include <sys/statvfs.h>

#include <atomic>
#include <optional>

namespace metro {

namespace {

// The ranks that share memory with this one. Freed once the memory is there.
MPI_Comm node_of(MPI_Comm comm, int rank, int ranks_per_node) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  if (ranks_per_node > 0) {
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(node, rank / ranks_per_node, rank, &part), "MPI_Comm_split");
    check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
    node = part;
  }
  check_mpi(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return node;
}

}  // namespace

void MpiNodeMemory::publish() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  transport_->barrier();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::unique_ptr<NodeMemory> MpiTransport::allocate_node_memory(std::int64_t num_bytes) {
  // What blocks below is waited for from here on, where it can be polled.
  barrier();
  MPI_Comm node = MPI_COMM_NULL;
  int rank = 0;
  int num_ranks = 1;
  {
    const Deadline deadline("MPI_Comm_split_type", timeout_s_);
    node = node_of(comm_, static_cast<int>(rank_), static_cast<int>(ranks_per_node_));
    check_mpi(MPI_Comm_rank(node, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(node, &num_ranks), "MPI_Comm_size");
  }

  // The lowest rank of a node creates the memory and tells the others where it is.
  std::optional<SharedSegment> segment;
  SharedSegment::Address address;
  agree(*this, [&] {
    if (rank == 0) {
      segment.emplace(SharedSegment::create(num_bytes));
      address = segment->address();
    }
  });
  {
    const Deadline deadline("MPI_Bcast", timeout_s_);
    check_mpi(MPI_Bcast(&address, static_cast<int>(sizeof address), MPI_BYTE, 0, node), "MPI_Bcast");
    check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  }
  agree(*this, [&] {
    if (rank != 0) {
      segment.emplace(SharedSegment::open(address, num_bytes));
    }
    segment->take_pages(rank, num_ranks);
  });
  return std::make_unique<MpiNodeMemory>(*this, std::move(*segment), rank, num_ranks);
}

std::int64_t MpiTransport::node_memory_room() const {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) {
    return 0;
  }
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace metro
