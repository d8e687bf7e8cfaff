#include "transport/mpi_node_memory.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "transport/agree.hpp"
#include "transport/host_name.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_transport.hpp"

#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

namespace metro {

MpiNodeMemory::MpiNodeMemory(Transport& transport, MPI_Comm node, std::int64_t num_bytes)
    : transport_(&transport), node_(node), exceptions_at_start_(std::uncaught_exceptions()) {
  METRO_REQUIRE(num_bytes >= 0, std::to_string(num_bytes));
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_set_errhandler(node_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(node_, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(node_, &size), "MPI_Comm_size");
  rank_ = rank;
  num_ranks_ = size;
  // The first rank asks for everything, and for a page more so that the rest can begin at one.
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const auto own_bytes = static_cast<MPI_Aint>(rank == 0 ? num_bytes + page : 0);
  void* ignored = nullptr;
  check_mpi(MPI_Win_allocate_shared(own_bytes, 1, MPI_INFO_NULL, node_, &ignored, &window_), "MPI_Win_allocate_shared");
  check_mpi(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
  MPI_Aint found_bytes = 0;
  int unit = 0;
  std::byte* base = nullptr;
  check_mpi(MPI_Win_shared_query(window_, 0, &found_bytes, &unit, static_cast<void*>(&base)), "MPI_Win_shared_query");
  METRO_REQUIRE(found_bytes == static_cast<MPI_Aint>(num_bytes + page), std::to_string(found_bytes));
  const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(base)) % page;
  bytes_ = {base + (page - beyond) % page, at(num_bytes)};
  check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
}

MpiNodeMemory::~MpiNodeMemory() {
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    return;
  }
  if (MPI_Win_unlock_all(window_) != MPI_SUCCESS || MPI_Win_free(&window_) != MPI_SUCCESS ||
      MPI_Comm_free(&node_) != MPI_SUCCESS) {
    std::fputs("metro: MPI_Win_free failed\n", stderr);
  }
}

void MpiNodeMemory::take_own_pages() {
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t num_pages = ceil_div(std::ssize(bytes_), page);
  const std::int64_t first = num_pages * rank_ / num_ranks_;
  const std::int64_t end = num_pages * (rank_ + 1) / num_ranks_;
  std::byte* const begin = bytes_.data() + first * page;
  const std::size_t num_bytes = at((end - first) * page);
  if (num_bytes == 0) {
    return;
  }
  // Advice only: where shared memory has no huge pages nothing changes.
  static_cast<void>(::madvise(begin, num_bytes, MADV_HUGEPAGE));
#ifdef MADV_POPULATE_WRITE
  if (::madvise(begin, num_bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    throw Error(ExitCode::machine, "no room for " + std::to_string(bytes_.size()) +
                                       " bytes of memory that the ranks of " + host_name() +
                                       " share: " + std::strerror(errno) + "; free it or set model.sharing = \"rank\"");
  }
#endif
}

void MpiNodeMemory::publish() {
  check_mpi(MPI_Win_sync(window_), "MPI_Win_sync");
  transport_->barrier();
  check_mpi(MPI_Win_sync(window_), "MPI_Win_sync");
}

std::unique_ptr<NodeMemory> MpiTransport::allocate_node_memory(std::int64_t num_bytes) {
  // What follows cannot be polled, but once all ranks are here none of them is waited for long.
  barrier();
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, static_cast<int>(rank_), MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  if (ranks_per_node_ > 0) {
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(node, static_cast<int>(rank_ / ranks_per_node_), static_cast<int>(rank_), &part),
              "MPI_Comm_split");
    check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
    node = part;
  }
  auto memory = std::make_unique<MpiNodeMemory>(*this, node, num_bytes);
  agree(*this, [&] { memory->take_own_pages(); });
  return memory;
}

std::int64_t MpiTransport::node_memory_room() const {
  // Where Open MPI and MPICH keep the windows that processes share.
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) {
    return 0;
  }
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace metro
