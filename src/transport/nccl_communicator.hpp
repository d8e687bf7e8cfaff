// The ranks of a job as NCCL sees them: started over the transport of the host, never waited for without end, ended or
// aborted. For nccl_exchange.cpp only.
//
// The communicator does not block: each of its calls may say "in progress", and is over when the state of the
// communicator no longer does.
#pragma once

#include "transport/transport.hpp"

#include <nccl.h>

#include <string>

namespace metro {

class NcclCommunicator {
 public:
  // Collective; errors as make_nccl_exchange(). transport outlives this.
  NcclCommunicator(Transport& transport, double timeout_s);
  // Collective: flushes what is enqueued. While an exception is unwinding it aborts instead.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Throws Error(machine) if it failed before.
  ncclComm_t native() const;

  // Returns once a call that returned `result` is over. Throws Error(machine) after aborting the communicator if the
  // call failed. operation: a literal, what it is about.
  void finish(ncclResult_t result, const char* operation);

  // Throws as finish() if something of what is enqueued has failed meanwhile.
  void look(const char* operation);

 private:
  // Aborts what it holds.
  struct Handle {
    Handle() = default;
    ~Handle();
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ncclResult_t abort();
    ncclComm_t comm = nullptr;
  };

  void start();
  ncclResult_t state() const;
  ncclResult_t settled(ncclResult_t result, const char* operation);
  void leave_first_word(const char* operation);
  [[noreturn]] void fail(ncclResult_t result, const char* operation);

  Transport* transport_;
  double timeout_s_;
  int exceptions_at_start_;
  Handle handle_;
};

// "NCCL 2.28.9".
std::string nccl_version_text();

}  // namespace metro
