#include "mpi_launch/core_dumps.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace metro {

namespace {

// Too short for any dump, so none is written. Unlike 0 it also keeps Linux from handing a dump to a program
// (/proc/sys/kernel/core_pattern beginning with "|"), for which it otherwise ignores the limit.
constexpr rlim_t no_dump_bytes = 1;

void set_limit(const rlimit& limit) {
  if (::setrlimit(RLIMIT_CORE, &limit) != 0) {
    throw Error(ExitCode::machine, std::string("cannot set the limit for core dumps: ") + std::strerror(errno));
  }
}

}  // namespace

CoreDumps::CoreDumps() {
  if (::getrlimit(RLIMIT_CORE, &at_start_) != 0) {
    throw Error(ExitCode::machine, std::string("cannot read the limit for core dumps: ") + std::strerror(errno));
  }
  set_limit({std::min(no_dump_bytes, at_start_.rlim_max), at_start_.rlim_max});
}

void CoreDumps::allow() const {
  set_limit(at_start_);
}

}  // namespace metro
