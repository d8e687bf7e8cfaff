#include "checkpoint/file_descriptor.hpp"

#include "base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace metro {

namespace {

[[noreturn]] void fail(ExitCode exit_code, const char* verb, const std::string& path, int reason) {
  throw Error(exit_code, fmt::format("cannot {} {}: {}", verb, path, std::strerror(reason)));
}

}  // namespace

FileDescriptor FileDescriptor::open_to_read(const std::string& path, ExitCode on_failure) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC), path);
  struct stat status {};
  if (file.number_ < 0 || ::fstat(file.number_, &status) != 0) {
    fail(on_failure, "open", path, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(on_failure, fmt::format("cannot read {}: it is not a regular file", path));
  }
  return file;
}

FileDescriptor FileDescriptor::create(const std::string& path) {
  return FileDescriptor(make_new_file(path), path);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : number_(std::exchange(other.number_, -1)), path_(std::move(other.path_)) {}

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) {
    ::close(number_);
  }
}

std::int64_t FileDescriptor::size(ExitCode on_failure) const {
  struct stat status {};
  if (::fstat(number_, &status) != 0) {
    fail(on_failure, "read", path_, errno);
  }
  return status.st_size;
}

void FileDescriptor::read_at(std::int64_t offset, std::span<std::byte> out, ExitCode on_failure,
                             std::int64_t max_bytes) const {
  while (!out.empty()) {
    const auto wanted = std::min(out.size(), static_cast<std::size_t>(max_bytes));
    const ssize_t count = ::pread(number_, out.data(), wanted, offset);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail(on_failure, "read", path_, errno);
    }
    if (count == 0) {
      throw Error(on_failure, fmt::format("{} ends at byte {}: it is truncated", path_, offset));
    }
    out = out.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void FileDescriptor::reserve(std::int64_t num_bytes) const {
  int result = -1;
  do {
    result = ::fallocate(number_, 0, 0, num_bytes);
  } while (result != 0 && errno == EINTR);
  const bool no_room = result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG);
  if (no_room) {
    throw Error(ExitCode::machine,
                fmt::format("cannot write {} of {} bytes: {}", path_, num_bytes, std::strerror(errno)));
  }
}

void FileDescriptor::write_at(std::int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const auto wanted = std::min(bytes.size(), static_cast<std::size_t>(default_max_bytes));
    const ssize_t count = ::pwrite(number_, bytes.data(), wanted, offset);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail(ExitCode::machine, "write", path_, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void FileDescriptor::sync_and_close() {
  const bool synced = ::fsync(number_) == 0;
  const int sync_reason = errno;
  const bool closed = ::close(std::exchange(number_, -1)) == 0;
  if (!synced || !closed) {
    fail(ExitCode::machine, "write", path_, synced ? errno : sync_reason);
  }
}

}  // namespace metro
