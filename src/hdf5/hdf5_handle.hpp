// The two things every use of HDF5 needs: ids that close themselves, and calls whose failure becomes an Error with what
// HDF5's error stack says. hdf5.h itself (which pulls in mpi.h when HDF5 is parallel) stays inside the .cpp files.
// HDF5 is used by one thread at a time.
#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace metro {

using Hdf5Id = std::int64_t;  // hid_t of HDF5 1.10 and newer

// For the start of everything that uses HDF5: turns off its own printing of errors, its clean-up at exit, which crashes
// the program when a file could not be closed because the disk was full, and the loading of filters as shared
// libraries, which a file could ask for. A rank that writes files calls it before MPI starts: HDF5 would otherwise
// leave that clean-up to the end of MPI, where nothing turns it off.
void prepare_hdf5();

// Throws Error(on_failure): "<what>: <outermost and innermost text of the HDF5 error stack>".
[[noreturn]] void throw_hdf5(ExitCode on_failure, const std::string& what);

// Returns the result of an HDF5 call unless it is negative, which is how HDF5 reports failure.
template <class T>
T checked_hdf5(T result, ExitCode on_failure, const std::string& what) {
  if (result < 0) {
    throw_hdf5(on_failure, what);
  }
  return result;
}

// Owns one HDF5 id of any kind.
class Hdf5Handle {
 public:
  using Close = int (*)(Hdf5Id);

  // Takes the result of an opening or creating call and checks it.
  Hdf5Handle(Hdf5Id id, Close close_call, ExitCode on_failure, const std::string& what)
      : id_(checked_hdf5(id, on_failure, what)), close_(close_call) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, invalid)), close_(other.close_) {}
  // Closing here cannot report a failure; after writing, call close().
  ~Hdf5Handle() {
    if (id_ >= 0) {
      close_(id_);
    }
  }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(Hdf5Handle&&) = delete;

  Hdf5Id id() const { return id_; }

  // Closes now and checks: the last chance to learn that a write failed.
  void close(ExitCode on_failure, const std::string& what) {
    checked_hdf5(close_(std::exchange(id_, invalid)), on_failure, what);
  }

 private:
  static constexpr Hdf5Id invalid = -1;

  Hdf5Id id_;
  Close close_;
};

}  // namespace metro
