// What the files of NCCL's test double share.
#pragma once

#include "device_double/nccl_double.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace metro::nccl_double {

enum class Kind : std::int64_t { hello, all_gather, broadcast, message };

// In front of what ranks send each other; both sides must mean the same.
struct Header {
  Kind kind = Kind::hello;
  std::int64_t number = 0;  // of the collective, or of the message between the two ranks
  std::int64_t bytes = 0;
  std::int64_t root = 0;
};

struct Operation {
  Kind kind = Kind::message;
  const std::byte* send = nullptr;  // memory of the device; nullptr: only receives
  std::byte* recv = nullptr;        // likewise
  std::int64_t bytes = 0;
  int peer = 0;  // of a message; root of a broadcast
};

// Messages of one item, or of the start of a communicator, between this rank and others.
class Transfers {
 public:
  explicit Transfers(int tag) : tag_(tag) {}
  void send(int to, const Header& header, const std::byte* data);
  // take(data): what to do with the bytes that come, once their header is the expected one.
  void expect(int from, const Header& header, std::function<void(const std::byte* data)> take);
  // Moves messages on. Whether all have come and gone. What is wrong with one that came otherwise goes to `fault`.
  bool advance(std::string& fault);

 private:
  struct Sent {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Expected {
    int from = 0;
    Header header;
    std::function<void(const std::byte*)> take;
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    bool is_matched = false;
    bool is_done = false;
  };
  bool begin_receiving(Expected& expected);
  bool finish_receiving(Expected& expected, std::string& fault);

  int tag_;
  std::vector<std::unique_ptr<Sent>> sent_;
  std::vector<Expected> expected_;
};

enum class Stage { starting, running, finalising, finalised, aborted, destroyed };

}  // namespace metro::nccl_double

struct ncclComm {
  int rank = 0;
  int size = 1;
  int tag = 0;
  metro::nccl_double::Stage stage = metro::nccl_double::Stage::starting;
  ncclResult_t state = ncclInProgress;
  std::unique_ptr<metro::nccl_double::Transfers> hellos;
  cudaStream_t stream = nullptr;                      // of the first operation
  std::vector<metro::nccl_double::Operation> called;  // and not yet in the stream
  std::int64_t num_collectives = 0;
  std::vector<std::int64_t> num_sent, num_received;       // messages, by peer
  std::shared_ptr<int> in_use = std::make_shared<int>();  // items in the stream and in graphs hold it
};

namespace metro::nccl_double {

// Records a call, and returns the injected error if it is its turn.
ncclResult_t begin_call(const std::string& function, const std::string& details = "");
// One line on stderr; kept for ncclGetLastError(). Returns `error`.
ncclResult_t complain(ncclResult_t error, const std::string& what);
// Of the next item that runs: an error to fail with, and whether this rank is silent from now on.
ncclResult_t failure_of_next_item();
// Of the item that ends now: an error to end with.
ncclResult_t failure_of_ended_item();
bool is_silent();

// ncclSuccess, or a complaint about a communicator that is unknown or cannot take a call now.
ncclResult_t check_usable(ncclComm_t comm, const std::string& function);
// The operations that were called become one item of the stream.
ncclResult_t enqueue_called(ncclComm_t comm);
// Where the host waits by MPI: what NCCL has begun goes on meanwhile, as on a device.
void let_streams_go_on();
// A test double must not go on without MPI.
void check_mpi_call(int code, const char* call);

}  // namespace metro::nccl_double
