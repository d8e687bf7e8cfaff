#include "transport/shared_segment.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "transport/host_name.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace metro {

namespace {

constexpr const char* folder = "/dev/shm";

std::int64_t page_bytes() {
  return ::sysconf(_SC_PAGESIZE);
}

// At least a page: nothing cannot be mapped.
std::int64_t whole_pages(std::int64_t num_bytes) {
  return std::max<std::int64_t>(ceil_div(num_bytes, page_bytes()), 1) * page_bytes();
}

[[noreturn]] void fail(const char* call, int error) {
  throw Error(ExitCode::machine,
              fmt::format("no memory that the ranks of {} share: {}: {}; /dev/shm must be usable, or "
                          "set model.sharing = \"rank\"",
                          host_name(), call, std::strerror(error)));
}

}  // namespace

SharedSegment SharedSegment::create(std::int64_t num_bytes) {
  METRO_REQUIRE(num_bytes >= 0, std::to_string(num_bytes));
  SharedSegment segment(::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (segment.file_ < 0) {
    fail("open", errno);
  }
  if (::ftruncate(segment.file_, whole_pages(num_bytes)) != 0) {
    fail("ftruncate", errno);
  }
  segment.map(num_bytes);
  return segment;
}

SharedSegment SharedSegment::open(const Address& address, std::int64_t num_bytes) {
  METRO_REQUIRE(num_bytes >= 0, std::to_string(num_bytes));
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.file);
  SharedSegment segment(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (segment.file_ < 0) {
    fail(path.c_str(), errno);
  }
  segment.map(num_bytes);
  if (segment.address_.device != address.device || segment.address_.inode != address.inode) {
    fail(path.c_str(), ESTALE);  // another process has this number here
  }
  return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      address_(other.address_),
      mapped_(std::exchange(other.mapped_, {})),
      bytes_(std::exchange(other.bytes_, {})) {}

SharedSegment::~SharedSegment() {
  if (!mapped_.empty()) {
    ::munmap(mapped_.data(), mapped_.size());
  }
  if (file_ >= 0) {
    ::close(file_);
  }
}

void SharedSegment::map(std::int64_t num_bytes) {
  struct stat status {};
  if (::fstat(file_, &status) != 0) {
    fail("fstat", errno);
  }
  address_ = {::getpid(), file_, status.st_dev, status.st_ino};
  const std::int64_t size = whole_pages(num_bytes);
  if (status.st_size != size) {
    fail("fstat", ESTALE);
  }
  void* const begin = ::mmap(nullptr, at(size), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (begin == MAP_FAILED) {
    fail("mmap", errno);
  }
  mapped_ = {static_cast<std::byte*>(begin), at(size)};
  bytes_ = mapped_.first(at(num_bytes));
}

void SharedSegment::take_pages(std::int64_t part, std::int64_t num_parts) {
  METRO_REQUIRE(part >= 0 && part < num_parts, std::to_string(part));
  const std::int64_t page = page_bytes();
  const std::int64_t num_pages = std::ssize(mapped_) / page;
  const std::int64_t first = num_pages * part / num_parts;
  const std::int64_t own_bytes = (num_pages * (part + 1) / num_parts - first) * page;
  if (own_bytes == 0) {
    return;
  }
  std::byte* const begin = mapped_.data() + first * page;
  // Advice only: where shared memory has no huge pages nothing changes.
  static_cast<void>(::madvise(begin, at(own_bytes), MADV_HUGEPAGE));
#ifdef MADV_POPULATE_WRITE
  if (::madvise(begin, at(own_bytes), MADV_POPULATE_WRITE) == 0) {
    return;
  }
#endif
  // A kernel before Linux 5.14, or there is no room: this says which.
  int error = EINTR;
  while (error == EINTR) {
    error = ::posix_fallocate(file_, first * page, own_bytes);
  }
  if (error != 0) {
    fail(fmt::format("{} bytes", bytes_.size()).c_str(), error);
  }
}

}  // namespace metro
