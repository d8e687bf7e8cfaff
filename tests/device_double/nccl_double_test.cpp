// What the double of NCCL refuses: each is a use that the real one does not survive, or not always.
#include "device_double/nccl_double.hpp"
#include "device_double/device_double.hpp"
#include "kernels/buffer.hpp"
#include "kernels/queue.hpp"

#include <catch2/catch.hpp>

#include <mpi.h>

#include <string>

using Catch::Matchers::Contains;
using metro::Buffer;
namespace nccl = metro::nccl_double;

namespace {

// A communicator of all ranks that has started.
struct Communicator {
  Communicator() {
    nccl::reset();
    ncclUniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&comm, size, id, rank, &config) == ncclInProgress);
    CHECK(settled() == ncclSuccess);
  }
  ~Communicator() {
    if (comm != nullptr) {
      CHECK(ncclCommAbort(comm) == ncclSuccess);
    }
    metro::wait_for_kernels();
    // Aborted everywhere before anybody starts the next one.
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ncclResult_t settled() const {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    }
    return state;
  }

  ncclComm_t comm = nullptr;
  int rank = 0;
  int size = 1;
};

cudaStream_t queue() {
  return static_cast<cudaStream_t>(metro::native_queue());
}

std::string last_error() {
  return ncclGetLastError(nullptr);
}

}  // namespace

TEST_CASE("the double refuses a call while another is in progress") {
  const Communicator job;
  const Buffer<std::byte> memory("memory", 16);

  CHECK(ncclAllGather(memory.data(), memory.data() + 8, 1, ncclUint8, job.comm, queue()) == ncclInProgress);

  CHECK(ncclAllGather(memory.data(), memory.data() + 8, 1, ncclUint8, job.comm, queue()) == ncclInvalidUsage);
  CHECK_THAT(last_error(), Contains("ncclAllGather while the communicator is in progress"));
}

TEST_CASE("the double enqueues a call when the state of its communicator is asked for, and no earlier") {
  const Communicator job;
  const Buffer<std::byte> memory("memory", 16);
  metro::wait_for_kernels();
  const std::int64_t queued_before = metro::device_double::num_queued();

  CHECK(ncclAllGather(memory.data(), memory.data() + 8, 1, ncclUint8, job.comm, queue()) == ncclInProgress);
  CHECK(metro::device_double::num_queued() == queued_before);
  CHECK(job.settled() == ncclSuccess);

  CHECK(metro::device_double::num_queued() == queued_before + 1);
  metro::wait_for_kernels();
}

TEST_CASE("the double refuses sends and receives outside a group, to the rank itself, and of no bytes") {
  const Communicator job;
  const Buffer<std::byte> memory("memory", 16);

  CHECK(ncclSend(memory.data(), 1, ncclUint8, (job.rank + 1) % job.size, job.comm, queue()) == ncclInvalidUsage);
  CHECK_THAT(last_error(), job.size == 1 ? Contains("ncclSend with rank 0") : Contains("outside a group"));
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclSend(memory.data(), 1, ncclUint8, job.rank, job.comm, queue()) == ncclInvalidUsage);
  CHECK_THAT(last_error(), Contains("ncclSend with rank "));
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(ncclAllGather(memory.data(), memory.data() + 8, 0, ncclUint8, job.comm, queue()) == ncclInvalidUsage);
  CHECK_THAT(last_error(), Contains("ncclAllGather of no bytes"));
}

TEST_CASE("the double refuses memory of the host and a stream that is not the one before") {
  const Communicator job;
  const Buffer<std::byte> memory("memory", 16);
  std::byte on_host{};
  cudaStream_t other = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);

  CHECK(ncclBroadcast(&on_host, &on_host, 1, ncclUint8, 0, job.comm, queue()) == ncclInvalidUsage);
  CHECK_THAT(last_error(), Contains("ncclBroadcast with other memory than the device's"));
  CHECK(ncclAllGather(memory.data(), memory.data() + 8, 1, ncclUint8, job.comm, queue()) == ncclInProgress);
  CHECK(job.settled() == ncclSuccess);
  CHECK(ncclAllGather(memory.data(), memory.data() + 8, 1, ncclUint8, job.comm, other) == ncclInvalidUsage);
  CHECK_THAT(last_error(), Contains("ncclAllGather on another stream than before"));

  metro::wait_for_kernels();
  CHECK(cudaStreamDestroy(other) == cudaSuccess);
}

TEST_CASE("the double knows a communicator that has ended, and one that was never finalised") {
  Communicator job;
  const Buffer<std::byte> memory("memory", 16);
  CHECK(ncclCommDestroy(job.comm) == ncclInvalidUsage);
  CHECK_THAT(last_error(), Contains("not finalised"));
  CHECK(ncclCommAbort(job.comm) == ncclSuccess);

  CHECK(ncclAllGather(memory.data(), memory.data() + 8, 1, ncclUint8, job.comm, queue()) == ncclInvalidArgument);
  CHECK(ncclCommAbort(job.comm) == ncclInvalidArgument);
  CHECK_THAT(last_error(), Contains("ncclCommAbort of a communicator that has ended"));
  job.comm = nullptr;
}
