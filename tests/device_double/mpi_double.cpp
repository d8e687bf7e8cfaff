#include "device_double/mpi_double.hpp"

#include "device_double/device_double.hpp"
#include "device_double/nccl_state.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace metro::mpi_double {

namespace {

// A message of device memory on its way, in memory of the host.
struct Message {
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<std::byte> bytes = {};
  void* to = nullptr;  // where it is received; nullptr: it is sent
};

struct State {
  bool is_aware = false;
  std::int64_t num_messages = 0;
  std::vector<Message> messages;
};

bool environment_is_aware() {
  const char* const text = std::getenv("METRO_DOUBLE_AWARE_MPI");
  return text != nullptr && std::string_view(text) == "1";
}

State& state() {
  static State& the_state = *new State{environment_is_aware(), 0, {}};
  return the_state;
}

// MPI_SUCCESS, or the refusal of memory of a device.
int check(const char* function, const void* memory, int count, MPI_Datatype type) {
  if (!state().is_aware) {
    std::fprintf(stderr, "device double: %s was given device memory, and this MPI is not CUDA-aware\n", function);
    return MPI_ERR_BUFFER;
  }
  if (type != MPI_BYTE || !device_double::is_device_memory(memory, count)) {
    std::fprintf(stderr, "device double: %s of %d bytes that are not in one piece of device memory\n", function, count);
    return MPI_ERR_BUFFER;
  }
  ++state().num_messages;
  return MPI_SUCCESS;
}

// Those whose requests MPI has found complete have come, or gone.
void finish(const std::vector<MPI_Request>& complete) {
  std::erase_if(state().messages, [&](const Message& message) {
    if (std::ranges::find(complete, message.request) == complete.end()) {
      return false;
    }
    if (message.to != nullptr) {
      const device_double::DeviceAccess access;
      std::memcpy(message.to, message.bytes.data(), message.bytes.size());
    }
    return true;
  });
}

}  // namespace

void be_aware(bool is_aware) {
  state().is_aware = is_aware;
}

std::int64_t num_device_messages() {
  return state().num_messages;
}

}  // namespace metro::mpi_double

using namespace metro::mpi_double;
namespace device_double = metro::device_double;

// In place of MPI's own, by which the transport of the host exchanges and waits.

extern "C" int MPIX_Query_cuda_support() {
  return state().is_aware ? 1 : 0;
}

int MPI_Isend(const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (!device_double::is_device_memory(buf, 0)) {
    return PMPI_Isend(buf, count, datatype, dest, tag, comm, request);
  }
  if (const int refusal = check("MPI_Isend", buf, count, datatype); refusal != MPI_SUCCESS) {
    return refusal;
  }
  Message message{.bytes = std::vector<std::byte>(static_cast<std::size_t>(count))};
  {
    const device_double::DeviceAccess access;
    std::memcpy(message.bytes.data(), buf, message.bytes.size());
  }
  const int result = PMPI_Isend(message.bytes.data(), count, datatype, dest, tag, comm, request);
  message.request = *request;
  state().messages.push_back(std::move(message));
  return result;
}

int MPI_Irecv(void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Request* request) {
  if (!device_double::is_device_memory(buf, 0)) {
    return PMPI_Irecv(buf, count, datatype, source, tag, comm, request);
  }
  if (const int refusal = check("MPI_Irecv", buf, count, datatype); refusal != MPI_SUCCESS) {
    return refusal;
  }
  Message message{.bytes = std::vector<std::byte>(static_cast<std::size_t>(count)), .to = buf};
  const int result = PMPI_Irecv(message.bytes.data(), count, datatype, source, tag, comm, request);
  message.request = *request;
  state().messages.push_back(std::move(message));
  return result;
}

int MPI_Testall(int count, MPI_Request array_of_requests[], int* flag, MPI_Status array_of_statuses[]) {
  const std::vector<MPI_Request> asked(array_of_requests, array_of_requests + count);
  const int result = PMPI_Testall(count, array_of_requests, flag, array_of_statuses);
  if (result == MPI_SUCCESS && *flag != 0) {
    finish(asked);
  } else if (result == MPI_SUCCESS) {
    metro::nccl_double::let_streams_go_on();
  }
  return result;
}
