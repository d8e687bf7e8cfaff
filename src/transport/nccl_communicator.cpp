#include "transport/nccl_communicator.hpp"

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/last_words.hpp"
#include "base/seconds_since.hpp"
#include "base/stop_signals.hpp"
#include "transport/agree.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/roll_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>

namespace metro {

namespace {

// An abort that hangs must not keep the job from ending.
constexpr double longest_abort_s = 10.0;
// How long a rank waits for the one that has failed to say why, or for that to be found gone, and how much longer once
// SIGTERM tells that the launcher ends the job.
constexpr double first_word_s = 2.0;
constexpr double after_signal_s = 10.0;

bool has_failed(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

// What NCCL says on ranks that have not failed themselves.
bool may_come_from_another_rank(ncclResult_t result) {
  return result == ncclRemoteError || result == ncclSystemError;
}

// "NCCL 2.28.9, all-gather: remote process exited ...: what it says about it".
std::string failure_text(ncclResult_t result, const char* operation) {
  const char* const details = ncclGetLastError(nullptr);
  const bool has_details = details != nullptr && details[0] != '\0';
  return fmt::format("{}, {}: {}{}{}", nccl_version_text(), operation, ncclGetErrorString(result),
                     has_details ? ": " : "", has_details ? details : "");
}

// What most often keeps NCCL from starting.
std::string start_hint() {
  const char* const name = std::getenv("NCCL_SOCKET_IFNAME");
  return fmt::format(
      " (NCCL_SOCKET_IFNAME, which names the network interfaces for it, is {}; NCCL_DEBUG=WARN makes it "
      "say more)",
      name == nullptr ? "not set" : fmt::format("\"{}\"", name));
}

ncclUniqueId unique_id(Transport& transport) {
  const std::string bytes = from_rank_0(transport, [] {
    ncclUniqueId id{};
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw Error(ExitCode::machine, failure_text(result, "start") + start_hint());
    }
    return std::string(id.internal, sizeof id.internal);
  });
  ncclUniqueId id{};
  METRO_REQUIRE(bytes.size() == sizeof id.internal, std::to_string(bytes.size()));
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

}  // namespace

std::string nccl_version_text() {
  int version = 0;
  const ncclResult_t result = ncclGetVersion(&version);
  return result == ncclSuccess ? fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100)
                               : std::string("NCCL");
}

NcclCommunicator::Handle::~Handle() {
  static_cast<void>(abort());  // it has failed before, and that is reported
}

ncclResult_t NcclCommunicator::Handle::abort() {
  if (comm == nullptr) {
    return ncclSuccess;
  }
  const Deadline deadline("ncclCommAbort", longest_abort_s);
  const ncclResult_t result = ncclCommAbort(comm);
  comm = nullptr;
  return result;
}

NcclCommunicator::NcclCommunicator(Transport& transport, double timeout_s)
    : transport_(&transport), timeout_s_(timeout_s), exceptions_at_start_(std::uncaught_exceptions()) {
  METRO_REQUIRE(timeout_s > 0.0, std::to_string(timeout_s));
  start();
}

void NcclCommunicator::start() {
  const ncclUniqueId id = unique_id(*transport_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = ncclCommInitRankConfig(&handle_.comm, static_cast<int>(transport_->size()), id,
                                               static_cast<int>(transport_->rank()), &config);
  // In step, so that a rank on which it fails does not leave the others waiting for it.
  const auto begin = std::chrono::steady_clock::now();
  std::array<std::int64_t, 3> any{};  // in progress, failed, out of time
  for (auto pause = std::chrono::microseconds(100);; pause = std::min(2 * pause, std::chrono::microseconds(20000))) {
    result = result == ncclInProgress ? state() : result;
    any = {result == ncclInProgress ? 1 : 0, has_failed(result) ? 1 : 0, seconds_since(begin) > timeout_s_ ? 1 : 0};
    transport_->all_reduce_max(any);
    if (any[0] == 0 || any[1] != 0 || any[2] != 0) {
      break;
    }
    std::this_thread::sleep_for(pause);
  }
  agree(*transport_, [&] {
    if (has_failed(result)) {
      throw Error(ExitCode::machine, failure_text(result, "start") + start_hint());
    }
  });
  if (any[0] == 0) {
    return;
  }
  const std::vector<std::int64_t> waiting = gather_integers(*transport_, result == ncclInProgress ? 1 : 0);
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    if (waiting[static_cast<std::size_t>(rank)] != 0) {
      ranks.push_back(rank);
    }
  }
  throw AgreedError(ExitCode::machine, fmt::format("{} has not connected {} after {:g} s (run.timeout_s){}",
                                                   nccl_version_text(), ranks_text(ranks), timeout_s_, start_hint()));
}

NcclCommunicator::~NcclCommunicator() {
  if (handle_.comm == nullptr || std::uncaught_exceptions() > exceptions_at_start_) {
    return;
  }
  try {
    finish(ncclCommFinalize(handle_.comm), "end");
    const ncclResult_t result = ncclCommDestroy(handle_.comm);
    handle_.comm = nullptr;
    if (has_failed(result)) {
      throw Error(ExitCode::machine, failure_text(result, "end"));
    }
  } catch (const std::exception& failure) {
    write_last_words(failure.what());
    abort_job(static_cast<int>(ExitCode::machine));
  }
}

ncclComm_t NcclCommunicator::native() const {
  if (handle_.comm == nullptr) {
    throw Error(ExitCode::machine, nccl_version_text() + " has failed before");
  }
  return handle_.comm;
}

ncclResult_t NcclCommunicator::state() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(handle_.comm, &state);
  return result == ncclSuccess ? state : result;
}

ncclResult_t NcclCommunicator::settled(ncclResult_t result, const char* operation) {
  for (bool begins = true; result == ncclInProgress; begins = false) {
    result = state();
    if (result == ncclInProgress) {
      transport_->watch(operation, begins);
      std::this_thread::yield();
    }
  }
  return result;
}

void NcclCommunicator::finish(ncclResult_t result, const char* operation) {
  const ncclResult_t end = settled(result, operation);
  if (has_failed(end)) {
    fail(end, operation);
  }
}

void NcclCommunicator::look(const char* operation) {
  const ncclResult_t result = handle_.comm == nullptr ? ncclSuccess : state();
  if (has_failed(result)) {
    fail(result, operation);
  }
}

// When a rank dies, all others fail, and would hide with their lines the one that matters. Who knows more ends the job
// meanwhile. If nobody does, the ranks speak one after the other, so that the others hear of the end that the first
// asks for, and wait for it.
void NcclCommunicator::leave_first_word(const char* operation) {
  const double own_turn = 1.0 + 0.25 * static_cast<double>(std::min<std::int64_t>(transport_->rank(), 4));
  const double patience_s = std::min(first_word_s, 0.25 * timeout_s_) * own_turn;
  const auto begin = std::chrono::steady_clock::now();
  for (bool begins = true; seconds_since(begin) < patience_s + (termination_is_unanswered() ? after_signal_s : 0.0);
       begins = false) {
    transport_->watch(operation, begins);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void NcclCommunicator::fail(ncclResult_t result, const char* operation) {
  std::string text = failure_text(result, operation);
  // Before memory is freed by who catches this: that waits for the device, which would wait for the others.
  if (const ncclResult_t aborted = handle_.abort(); has_failed(aborted)) {
    text += fmt::format("; ncclCommAbort: {}", ncclGetErrorString(aborted));
  }
  if (transport_->size() > 1 && may_come_from_another_rank(result)) {
    leave_first_word(operation);
  }
  throw Error(ExitCode::machine, text);
}

}  // namespace metro
