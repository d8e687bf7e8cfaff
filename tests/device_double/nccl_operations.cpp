// NCCL's test double: groups and collectives, and what becomes of them when the stream gets there.
#include "device_double/device_double.hpp"
#include "device_double/nccl_state.hpp"

#include <cstring>
#include <utility>

namespace metro::nccl_double {

namespace {

using device_double::DeviceAccess;
using device_double::Progress;

struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;  // of the calls in it
  ncclResult_t failure = ncclSuccess;
};

Group& group() {
  static Group the_group;
  return the_group;
}

std::vector<ncclComm_t>& with_streams() {
  static auto& all = *new std::vector<ncclComm_t>;
  return all;
}

// What one item does when it runs.
class Run {
 public:
  Run(ncclComm_t comm, const std::vector<Operation>& operations) : comm_(comm), transfers_(comm->tag) {
    const DeviceAccess access;
    for (const Operation& operation : operations) {
      switch (operation.kind) {
        case Kind::all_gather:
          gather(operation);
          break;
        case Kind::broadcast:
          broadcast(operation);
          break;
        default:
          message(operation);
      }
    }
  }

  Progress go_on() {
    std::string fault;
    const DeviceAccess access;
    const bool is_over = transfers_.advance(fault);
    if (!fault.empty() && comm_->state == ncclSuccess) {
      comm_->state = complain(ncclInvalidUsage, fault);
    }
    return is_over && fault.empty() ? Progress::done : Progress::not_yet;
  }

 private:
  void receive(int from, const Header& header, std::byte* to) {
    transfers_.expect(from, header, [to, bytes = header.bytes](const std::byte* data) {
      std::memcpy(to, data, static_cast<std::size_t>(bytes));
    });
  }

  void gather(const Operation& operation) {
    const Header header{Kind::all_gather, comm_->num_collectives++, operation.bytes, 0};
    for (int rank = 0; rank < comm_->size; ++rank) {
      std::byte* const to = operation.recv + rank * operation.bytes;
      if (rank == comm_->rank) {
        std::memmove(to, operation.send, static_cast<std::size_t>(operation.bytes));
      } else {
        transfers_.send(rank, header, operation.send);
        receive(rank, header, to);
      }
    }
  }

  void broadcast(const Operation& operation) {
    const Header header{Kind::broadcast, comm_->num_collectives++, operation.bytes, operation.peer};
    if (operation.peer != comm_->rank) {
      receive(operation.peer, header, operation.recv);
      return;
    }
    for (int rank = 0; rank < comm_->size; ++rank) {
      if (rank != comm_->rank) {
        transfers_.send(rank, header, operation.send);
      }
    }
    std::memmove(operation.recv, operation.send, static_cast<std::size_t>(operation.bytes));
  }

  void message(const Operation& operation) {
    const auto peer = static_cast<std::size_t>(operation.peer);
    if (operation.send != nullptr) {
      transfers_.send(operation.peer, {Kind::message, comm_->num_sent[peer]++, operation.bytes, 0}, operation.send);
    } else {
      receive(operation.peer, {Kind::message, comm_->num_received[peer]++, operation.bytes, 0}, operation.recv);
    }
  }

  ncclComm_t comm_;
  Transfers transfers_;
};

// An item of the stream; a graph launches copies of it, each of which begins anew.
struct Item {
  ncclComm_t comm;
  std::vector<Operation> operations;
  std::shared_ptr<int> in_use;
  std::shared_ptr<Run> run = nullptr;
  bool has_begun = false;

  Progress operator()() {
    if (comm->stage == Stage::aborted) {
      if (run != nullptr) {
        static auto& unfinished = *new std::vector<std::shared_ptr<Run>>;  // MPI may still write into what they hold
        unfinished.push_back(std::move(run));
      }
      return Progress::done;
    }
    if (!has_begun) {
      has_begun = true;
      const ncclResult_t failure = failure_of_next_item();
      if (failure != ncclSuccess) {
        comm->state = failure;
      } else if (!is_silent()) {
        run = std::make_shared<Run>(comm, operations);
      }
    }
    const Progress progress = run == nullptr ? Progress::not_yet : run->go_on();
    if (progress == Progress::done) {
      if (const ncclResult_t failure = failure_of_ended_item(); failure != ncclSuccess) {
        comm->state = failure;
      }
    }
    return progress;
  }
};

std::string wrong_with(const Operation& operation, ncclComm_t comm, cudaStream_t stream, const std::string& function) {
  const bool gathers = operation.kind == Kind::all_gather;
  if (stream == nullptr || (comm->stream != nullptr && comm->stream != stream)) {
    return function + " on another stream than before";
  }
  if (operation.bytes <= 0) {
    return function + " of no bytes";
  }
  if (operation.peer < 0 || operation.peer >= comm->size ||
      (operation.kind == Kind::message && operation.peer == comm->rank)) {
    return function + " with rank " + std::to_string(operation.peer);
  }
  if (operation.kind == Kind::message && group().depth == 0) {
    return function + " outside a group, which can deadlock";
  }
  // Of a broadcast only the root's is read.
  const bool sends = operation.send != nullptr && (operation.kind != Kind::broadcast || operation.peer == comm->rank);
  if ((sends && !device_double::is_device_memory(operation.send, operation.bytes)) ||
      (operation.recv != nullptr &&
       !device_double::is_device_memory(operation.recv, operation.bytes * (gathers ? comm->size : 1)))) {
    return function + " with other memory than the device's";
  }
  return "";
}

// With calls of no group before this one.
ncclResult_t check_call(const Operation& operation, ncclComm_t comm, cudaStream_t stream, const std::string& function) {
  const bool first = group().depth == 0 || group().comm == nullptr;
  if (const ncclResult_t unusable = first ? check_usable(comm, function) : ncclSuccess; unusable != ncclSuccess) {
    return unusable;
  }
  if (!first && group().comm != comm) {
    return complain(ncclInvalidUsage, function + " of another communicator than the group's");
  }
  const std::string wrong = wrong_with(operation, comm, stream, function);
  return wrong.empty() ? ncclSuccess : complain(ncclInvalidUsage, wrong);
}

ncclResult_t take_call(const std::string& function, const std::string& details, const Operation& operation,
                       ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = begin_call(function, details);
  if (result == ncclSuccess && type != ncclUint8 && type != ncclInt8) {
    result = complain(ncclInvalidArgument, "only bytes are known");
  }
  result = result != ncclSuccess ? result : check_call(operation, comm, stream, function);
  if (result != ncclSuccess) {
    group().failure = group().depth > 0 ? result : ncclSuccess;
    return result;
  }
  if (comm->stream == nullptr) {
    comm->stream = stream;
    with_streams().push_back(comm);
  }
  comm->called.push_back(operation);
  group().comm = comm;
  if (group().depth > 0) {
    return ncclSuccess;
  }
  return comm->state = ncclInProgress;
}

}  // namespace

void let_streams_go_on() {
  static bool is_inside = false;
  if (is_inside) {
    return;
  }
  is_inside = true;
  for (const ncclComm_t comm : with_streams()) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (comm->stage == Stage::running && cudaStreamIsCapturing(comm->stream, &capture) == cudaSuccess &&
        capture == cudaStreamCaptureStatusNone) {
      static_cast<void>(cudaStreamQuery(comm->stream));  // what fails is told to who asks next
    }
  }
  is_inside = false;
}

ncclResult_t enqueue_called(ncclComm_t comm) {
  const cudaError_t result =
      device_double::enqueue(comm->stream, Item{comm, std::exchange(comm->called, {}), comm->in_use});
  return result == cudaSuccess ? ncclSuccess : complain(ncclUnhandledCudaError, cudaGetErrorString(result));
}

}  // namespace metro::nccl_double

using namespace metro::nccl_double;

ncclResult_t ncclGroupStart() {
  if (const ncclResult_t failure = begin_call("ncclGroupStart"); failure != ncclSuccess) {
    return failure;
  }
  if (group().depth++ == 0) {
    group() = Group{1, nullptr, ncclSuccess};
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  ncclResult_t result = begin_call("ncclGroupEnd");
  if (group().depth == 0) {
    return complain(ncclInvalidUsage, "ncclGroupEnd without a start");
  }
  if (--group().depth > 0) {
    return result;
  }
  const Group ended = std::exchange(group(), Group());
  result = ended.failure != ncclSuccess ? ended.failure : result;
  if (ended.comm == nullptr) {
    return result;
  }
  if (result != ncclSuccess) {
    ended.comm->called.clear();
    return ended.comm->state = result;
  }
  return ended.comm->state = ncclInProgress;
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto bytes = static_cast<std::int64_t>(sendcount);
  return take_call(
      "ncclAllGather", std::to_string(bytes),
      {Kind::all_gather, static_cast<const std::byte*>(sendbuff), static_cast<std::byte*>(recvbuff), bytes, 0},
      datatype, comm, stream);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto bytes = static_cast<std::int64_t>(count);
  return take_call(
      "ncclBroadcast", std::to_string(bytes) + " from " + std::to_string(root),
      {Kind::broadcast, static_cast<const std::byte*>(sendbuff), static_cast<std::byte*>(recvbuff), bytes, root},
      datatype, comm, stream);
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const auto bytes = static_cast<std::int64_t>(count);
  return take_call("ncclSend", std::to_string(bytes) + " to " + std::to_string(peer),
                   {Kind::message, static_cast<const std::byte*>(sendbuff), nullptr, bytes, peer}, datatype, comm,
                   stream);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const auto bytes = static_cast<std::int64_t>(count);
  return take_call("ncclRecv", std::to_string(bytes) + " from " + std::to_string(peer),
                   {Kind::message, nullptr, static_cast<std::byte*>(recvbuff), bytes, peer}, datatype, comm, stream);
}
