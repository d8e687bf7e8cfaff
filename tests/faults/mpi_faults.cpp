// Calls of MPI as the metro program makes them, one of which goes wrong (injection.hpp): MPI's profiling interface lets
// a library define MPI_X and call the real one as PMPI_X.
//
// What messages can suffer: flip:N flips the lowest bit of byte N of what is sent, zero sends zeros, flip_received:N of
// what arrives (the other ranks see it as it was), resize:N sends N bytes more or, if negative, fewer. `fail` makes the
// call return an error.
#include "faults/injection.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

namespace {

using faults::Fault;

std::size_t bytes_of(long count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  return static_cast<std::size_t>(count) * static_cast<std::size_t>(size);
}

// What was sent changed; kept until the end, as MPI may still read it.
std::vector<unsigned char>& new_copy() {
  static std::deque<std::vector<unsigned char>> copies;
  return copies.emplace_back();
}

void flip(void* data, std::size_t num_bytes, long byte) {
  if (byte >= 0 && static_cast<std::size_t>(byte) < num_bytes) {
    static_cast<unsigned char*>(data)[byte] ^= 1;
  }
}

// What arrives and is to be changed once it is there.
struct Awaited {
  void* data = nullptr;
  std::size_t num_bytes = 0;
  long byte = 0;
};
Awaited awaited;

void flip_what_arrived() {
  if (awaited.data != nullptr) {
    flip(awaited.data, awaited.num_bytes, awaited.byte);
    awaited.data = nullptr;
  }
}

// One call: counts it and does what is due before it.
class Call {
 public:
  Call(const char* name, std::size_t num_bytes) : fault_(faults::due(name, num_bytes)) {
    if (fault_ != nullptr) {
      faults::act(*fault_);
    }
  }
  bool fails() const { return is("fail"); }
  // The message to send in place of this one of `count` bytes, which is changed too.
  const void* sent(const void* data, int& count) const {
    if (!is("flip") && !is("resize") && !is("zero")) {
      return data;
    }
    const auto* bytes = static_cast<const unsigned char*>(data);
    std::vector<unsigned char>& copy = new_copy();
    copy.assign(bytes, bytes + count);
    if (is("zero")) {
      std::fill(copy.begin(), copy.end(), 0);
    } else if (is("flip")) {
      flip(copy.data(), copy.size(), fault_->number);
    } else {
      count = std::max(0, count + static_cast<int>(fault_->number));
      copy.resize(static_cast<std::size_t>(count));
    }
    return copy.data();
  }
  void arrives(void* data, std::size_t num_bytes) const {
    if (is("flip_received")) {
      awaited = {data, num_bytes, fault_->number};
    }
  }

 private:
  bool is(const char* act) const { return fault_ != nullptr && fault_->act == act; }
  const Fault* fault_;
};

constexpr int failure = MPI_ERR_OTHER;

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const Call call("MPI_Init_thread", 0);
  return call.fails() ? failure : PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Finalize() {
  const Call call("MPI_Finalize", 0);
  return call.fails() ? failure : PMPI_Finalize();
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* copy, MPI_Request* request) {
  const Call call("MPI_Comm_idup", 0);
  return call.fails() ? failure : PMPI_Comm_idup(comm, copy, request);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  const Call call("MPI_Ibarrier", 0);
  return call.fails() ? failure : PMPI_Ibarrier(comm, request);
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  const Call call("MPI_Isend", bytes_of(count, type));
  const void* sent = call.sent(data, count);
  return call.fails() ? failure : PMPI_Isend(sent, count, type, to, tag, comm, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  const Call call("MPI_Irecv", bytes_of(count, type));
  call.arrives(data, bytes_of(count, type));
  return call.fails() ? failure : PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  const Call call("MPI_Ibcast", bytes_of(count, type));
  call.arrives(data, bytes_of(count, type));
  return call.fails() ? failure : PMPI_Ibcast(data, count, type, root, comm, request);
}

int MPI_Iallreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm comm,
                   MPI_Request* request) {
  const Call call("MPI_Iallreduce", bytes_of(count, type));
  call.arrives(receive, bytes_of(count, type));
  return call.fails() ? failure : PMPI_Iallreduce(send, receive, count, type, operation, comm, request);
}

int MPI_Iallgatherv(const void* send, int count, MPI_Datatype send_type, void* receive, const int* counts,
                    const int* displacements, MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  const Call call("MPI_Iallgatherv", bytes_of(count, send_type));
  int num_ranks = 0;
  PMPI_Comm_size(comm, &num_ranks);
  call.arrives(receive, bytes_of(std::accumulate(counts, counts + num_ranks, 0L), type));
  const void* sent = call.sent(send, count);
  return call.fails() ? failure
                      : PMPI_Iallgatherv(sent, count, send_type, receive, counts, displacements, type, comm, request);
}

int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* statuses) {
  const int code = PMPI_Testall(count, requests, done, statuses);
  if (code == MPI_SUCCESS && *done != 0) {
    flip_what_arrived();
  }
  return code;
}

}  // extern "C"
