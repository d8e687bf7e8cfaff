// NCCL's test double: start and end of communicators, injected failures, what was called.
#include "device_double/nccl_state.hpp"

#include "device_double/device_double.hpp"
#include "device_double/failures.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

namespace metro::nccl_double {

namespace {

const char* const item = " item";  // no function has such a name
const char* const end_of_item = " end of item";
constexpr std::int64_t never = -1;

struct State {
  std::vector<std::string> calls;
  std::vector<Failure<ncclResult_t>> failures;
  std::int64_t items_until_silent = never;
  bool starts_silently = false;
  bool refuses_shared_devices = false;
};

[[noreturn]] void refuse_setting(const char* name, const char* text) {
  std::fprintf(stderr, "nccl double: %s = %s\n", name, text);
  std::exit(2);
}

void make_silent(State& state, std::int64_t nth) {
  state.starts_silently = nth == 0;
  state.items_until_silent = nth - 1;
}

State state_of_environment() {
  State state;
  if (const char* const text = std::getenv("METRO_NCCL_DOUBLE_FAIL"); text != nullptr) {
    std::istringstream words(text);
    Failure<ncclResult_t> failure{};
    int error = 0;
    char colon = ' ';
    if (!std::getline(words, failure.function, ':') || !(words >> error >> colon >> failure.calls_before) ||
        colon != ':' || failure.calls_before-- < 1) {
      refuse_setting("METRO_NCCL_DOUBLE_FAIL", text);
    }
    failure.error = static_cast<ncclResult_t>(error);
    state.failures.push_back(failure);
  }
  if (const char* const text = std::getenv("METRO_NCCL_DOUBLE_FAIL_LATER"); text != nullptr) {
    int error = 0;
    std::int64_t nth = 0;
    if (std::sscanf(text, "%d:%ld", &error, &nth) != 2 || nth < 1) {
      refuse_setting("METRO_NCCL_DOUBLE_FAIL_LATER", text);
    }
    state.failures.push_back({item, static_cast<ncclResult_t>(error), nth - 1});
  }
  if (const char* const text = std::getenv("METRO_NCCL_DOUBLE_SILENT"); text != nullptr) {
    make_silent(state, std::strtoll(text, nullptr, 10));
  }
  return state;
}

State& state() {
  static State& the_state = *new State(state_of_environment());
  return the_state;
}

std::string& last_error() {
  static std::string& text = *new std::string;
  return text;
}

// All that were ever started: use after the end is found that way.
std::vector<ncclComm_t>& communicators() {
  static auto& all = *new std::vector<ncclComm_t>;
  return all;
}

bool is_known(ncclComm_t comm) {
  return std::find(communicators().begin(), communicators().end(), comm) != communicators().end();
}

ncclResult_t injected_failure(const std::string& function) {
  return take_failure(state().failures, function, ncclSuccess);
}

// What ranks tell each other at the start.
struct Hello {
  ncclUniqueId id{};
  std::array<char, 64> host{};
  std::array<char, 32> bus{};  // of the device
};

Hello own_hello(const ncclUniqueId& id) {
  Hello hello;
  hello.id = id;
  if (::gethostname(hello.host.data(), hello.host.size() - 1) != 0) {
    hello.host[0] = '\0';
  }
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) {
    static_cast<void>(cudaDeviceGetPCIBusId(hello.bus.data(), static_cast<int>(hello.bus.size()), device));
  }
  return hello;
}

void start_hellos(ncclComm_t comm, const ncclUniqueId& id) {
  comm->hellos = std::make_unique<Transfers>(comm->tag);
  const Hello own = own_hello(id);
  const Header header{Kind::hello, 0, sizeof own, 0};
  for (int rank = 0; rank < comm->size; ++rank) {
    if (rank == comm->rank) {
      continue;
    }
    comm->hellos->send(rank, header, reinterpret_cast<const std::byte*>(&own));
    comm->hellos->expect(rank, header, [comm, own, rank](const std::byte* data) {
      Hello other;
      std::memcpy(&other, data, sizeof other);
      if (std::memcmp(&other.id, &own.id, sizeof own.id) != 0) {
        comm->state = complain(ncclInvalidArgument, "rank " + std::to_string(rank) + " has another unique id");
      } else if (state().refuses_shared_devices && other.host == own.host && other.bus == own.bus) {
        comm->state = complain(ncclInvalidUsage, "Duplicate GPU detected: ranks " + std::to_string(comm->rank) +
                                                     " and " + std::to_string(rank) + " on device " + own.bus.data());
      }
    });
  }
}

void go_on(ncclComm_t comm) {
  if (comm->stage == Stage::starting && comm->hellos != nullptr && comm->state == ncclInProgress) {
    std::string fault;
    if (comm->hellos->advance(fault) && comm->state == ncclInProgress) {
      comm->stage = Stage::running;
      comm->state = ncclSuccess;
    }
    if (!fault.empty()) {
      comm->state = complain(ncclInternalError, fault);
    }
  } else if (comm->stage == Stage::running && !comm->called.empty()) {
    comm->state = enqueue_called(comm);
  } else if (comm->stage == Stage::finalising) {
    const cudaError_t stream = comm->stream == nullptr ? cudaSuccess : cudaStreamQuery(comm->stream);
    if (stream != cudaErrorNotReady) {
      comm->state = stream == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
      comm->stage = Stage::finalised;
    }
  }
}

}  // namespace

const std::vector<std::string>& calls() {
  return state().calls;
}

void fail_call(const std::string& function, ncclResult_t error, std::int64_t nth) {
  state().failures.push_back({function, error, nth - 1});
}

void fail_later(ncclResult_t error, std::int64_t nth) {
  fail_call(item, error, nth);
}

void fail_at_end(ncclResult_t error, std::int64_t nth) {
  fail_call(end_of_item, error, nth);
}

void be_silent(std::int64_t nth) {
  make_silent(state(), nth);
}

void refuse_shared_devices(bool refuse) {
  state().refuses_shared_devices = refuse;
}

void reset() {
  state() = state_of_environment();
  last_error().clear();
}

ncclResult_t begin_call(const std::string& function, const std::string& details) {
  device_double::count_call(function);
  state().calls.push_back(details.empty() ? function : function + " " + details);
  const ncclResult_t injected = injected_failure(function);
  if (injected != ncclSuccess) {
    last_error() = "the double fails in " + function + " as told";
  }
  return injected;
}

ncclResult_t complain(ncclResult_t error, const std::string& what) {
  std::fprintf(stderr, "nccl double: %s\n", what.c_str());
  last_error() = what;
  return error;
}

ncclResult_t failure_of_next_item() {
  device_double::count_call("nccl item");
  const ncclResult_t injected = injected_failure(item);
  if (injected != ncclSuccess) {
    last_error() = "the double fails while it runs, as told";
  }
  return injected;
}

ncclResult_t failure_of_ended_item() {
  const ncclResult_t injected = injected_failure(end_of_item);
  if (injected != ncclSuccess) {
    last_error() = "the double fails when it has run, as told";
  }
  return injected;
}

bool is_silent() {
  std::int64_t& items = state().items_until_silent;
  if (items <= 0) {
    return items == 0;
  }
  --items;
  return false;
}

ncclResult_t check_usable(ncclComm_t comm, const std::string& function) {
  if (!is_known(comm) || comm->stage == Stage::aborted || comm->stage == Stage::destroyed) {
    return complain(ncclInvalidArgument, function + " of a communicator that has ended, or never was");
  }
  if (comm->stage != Stage::running || comm->state != ncclSuccess || !comm->called.empty()) {
    return complain(ncclInvalidUsage, function + " while the communicator is in progress or has failed");
  }
  return ncclSuccess;
}

}  // namespace metro::nccl_double

using namespace metro::nccl_double;

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr std::array<const char*, 8> texts{"no error",
                                             "unhandled cuda error",
                                             "unhandled system error",
                                             "internal error",
                                             "invalid argument",
                                             "invalid usage",
                                             "remote process exited or there was a network error",
                                             "NCCL operation in progress"};
  return static_cast<std::size_t>(result) < texts.size() ? texts[static_cast<std::size_t>(result)]
                                                         : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t /*of all*/) {
  return last_error().c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  if (const ncclResult_t failure = begin_call("ncclGetUniqueId"); failure != ncclSuccess) {
    return failure;
  }
  static int number = 0;
  std::memset(uniqueId->internal, 0, sizeof uniqueId->internal);
  std::snprintf(uniqueId->internal, sizeof uniqueId->internal, "double %d.%d", static_cast<int>(::getpid()), ++number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config) {
  constexpr int first_tag = 20000;  // others use MPI_COMM_WORLD with none like that
  static int number = 0;
  ++number;
  *comm = nullptr;
  if (const ncclResult_t failure = begin_call("ncclCommInitRankConfig", std::to_string(nranks));
      failure != ncclSuccess) {
    return failure;
  }
  int size = 0;
  int own_rank = 0;
  check_mpi_call(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  check_mpi_call(MPI_Comm_rank(MPI_COMM_WORLD, &own_rank), "MPI_Comm_rank");
  if (nranks != size || rank != own_rank || config == nullptr || config->blocking != 0) {
    return complain(ncclInvalidArgument, "only communicators of all ranks that do not block are known");
  }
  communicators().push_back(*comm = new ncclComm);
  (*comm)->rank = rank;
  (*comm)->size = nranks;
  (*comm)->tag = first_tag + number % 10000;
  (*comm)->num_sent.resize(static_cast<std::size_t>(nranks));
  (*comm)->num_received.resize(static_cast<std::size_t>(nranks));
  if (!state().starts_silently) {
    start_hellos(*comm, commId);
  }
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  if (!is_known(comm) || comm->stage == Stage::aborted || comm->stage == Stage::destroyed) {
    return complain(ncclInvalidArgument, "ncclCommGetAsyncError of a communicator that has ended, or never was");
  }
  metro::device_double::count_call("ncclCommGetAsyncError");
  if (const ncclResult_t failure = injected_failure("ncclCommGetAsyncError"); failure != ncclSuccess) {
    return failure;
  }
  go_on(comm);
  *asyncError = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  ncclResult_t result = begin_call("ncclCommFinalize");
  result = result != ncclSuccess ? result : check_usable(comm, "ncclCommFinalize");
  if (result != ncclSuccess) {
    return result;
  }
  comm->stage = Stage::finalising;
  return comm->state = ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (const ncclResult_t failure = begin_call("ncclCommDestroy"); failure != ncclSuccess) {
    return failure;
  }
  if (!is_known(comm) || comm->stage != Stage::finalised) {
    return complain(ncclInvalidUsage, "ncclCommDestroy of a communicator that was not finalised");
  }
  comm->stage = Stage::destroyed;
  if (comm->in_use.use_count() > 1) {
    return complain(ncclInvalidUsage, "a graph outlives the communicator that it uses");
  }
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (const ncclResult_t failure = begin_call("ncclCommAbort"); failure != ncclSuccess) {
    return failure;
  }
  if (!is_known(comm) || comm->stage == Stage::aborted || comm->stage == Stage::destroyed) {
    return complain(ncclInvalidArgument, "ncclCommAbort of a communicator that has ended, or never was");
  }
  comm->stage = Stage::aborted;
  comm->called.clear();
  return ncclSuccess;
}
