// Calls of the C library on files, one of which goes wrong (injection.hpp): errno:NAME makes it and all later ones on
// the file fail, `torn` writes half and kills the process.
#include "faults/injection.hpp"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

namespace {

// The function of this name that would have been called without this library.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// Whether the call on the descriptor fails, with errno set.
bool fails(const char* call, std::size_t num_bytes, int descriptor) {
  const faults::Fault* fault = faults::due_from_then_on(call, num_bytes, descriptor);
  if (fault == nullptr) {
    return false;
  }
  faults::act(*fault);
  if (fault->act != "errno") {
    return false;
  }
  errno = fault->argument == "EIO" ? EIO : ENOSPC;
  return true;
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  const faults::Fault* fault = faults::due_from_then_on("write", size, descriptor);
  if (fault != nullptr) {
    faults::act(*fault);
    if (fault->act == "errno") {
      errno = fault->argument == "EIO" ? EIO : ENOSPC;
      return -1;
    }
    if (fault->act == "torn" && real(descriptor, data, size / 2) >= 0) {
      ::kill(::getpid(), SIGKILL);
    }
  }
  return real(descriptor, data, size);
}

ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return fails("write", size, descriptor) ? -1 : real(descriptor, data, size, offset);
}

ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  return fails("write", size, descriptor) ? -1 : real(descriptor, data, size, offset);
}

ssize_t read(int descriptor, void* data, size_t size) {
  static auto* const real = next<ssize_t(int, void*, size_t)>("read");
  return fails("read", size, descriptor) ? -1 : real(descriptor, data, size);
}

ssize_t pread(int descriptor, void* data, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return fails("read", size, descriptor) ? -1 : real(descriptor, data, size, offset);
}

ssize_t pread64(int descriptor, void* data, size_t size, off64_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off64_t)>("pread64");
  return fails("read", size, descriptor) ? -1 : real(descriptor, data, size, offset);
}

int fsync(int descriptor) {
  static auto* const real = next<int(int)>("fsync");
  return fails("fsync", 0, descriptor) ? -1 : real(descriptor);
}

}  // extern "C"
