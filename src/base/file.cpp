#include "base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace metro {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  int close() {
    const int result = ::close(number_);
    number_ = -1;
    return result;
  }

 private:
  int number_;
};

[[noreturn]] void fail_write(const std::string& partial) {
  const int reason = errno;
  ::unlink(partial.c_str());
  throw Error(ExitCode::machine, fmt::format("cannot write {}: {}", partial, std::strerror(reason)));
}

}  // namespace

std::string read_file(const std::string& path, ExitCode on_failure, std::size_t max_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) {
    throw Error(on_failure, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(on_failure, fmt::format("cannot read {}: it is a folder", path));
  }
  std::string content;
  content.reserve(std::min(static_cast<std::size_t>(status.st_size), max_bytes));
  std::array<char, 1 << 16> chunk{};
  while (true) {
    const ssize_t count = ::read(file.number(), chunk.data(), chunk.size());
    if (count < 0) {
      throw Error(on_failure, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
    }
    if (count == 0) {
      return content;
    }
    content.append(chunk.data(), static_cast<std::size_t>(count));
    if (content.size() > max_bytes) {
      throw Error(on_failure, fmt::format("cannot read {}: it has more than {} bytes", path, max_bytes));
    }
  }
}

int make_new_file(const std::string& path) {
  int descriptor = -1;
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) {
    descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  }
  if (descriptor < 0) {
    throw Error(ExitCode::usage, fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  }
  return descriptor;
}

void make_new_folder(const std::string& path, const std::string& name) {
  std::error_code error;
  if (!std::filesystem::create_directory(path, error)) {
    throw Error(ExitCode::usage,
                fmt::format("{}: cannot be made: {}", name, error ? error.message() : "it is there already"));
  }
}

void write_file_atomically(const std::string& path, std::string_view content) {
  const std::string partial = fmt::format("{}.partial-{}", path, ::getpid());
  Descriptor file(make_new_file(partial));
  while (!content.empty()) {
    const ssize_t count = ::write(file.number(), content.data(), content.size());
    if (count < 0) {
      fail_write(partial);
    }
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(file.number()) != 0 || file.close() != 0 || ::rename(partial.c_str(), path.c_str()) != 0) {
    fail_write(partial);
  }
}

void require_room_for_output(const std::string& path, bool overwrite) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) {
      throw Error(ExitCode::usage, fmt::format("cannot create {}: {}", path, std::strerror(errno)));
    }
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
      throw Error(ExitCode::usage, fmt::format("cannot create {}: {}", path, std::strerror(errno)));
    }
    return;
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ExitCode::usage, fmt::format("cannot create {}: something else than a plain file is there", path));
  }
  if (!overwrite) {
    throw Error(
        ExitCode::usage,
        fmt::format("{} is there already; choose another output.directory or name, or give --overwrite to replace it",
                    path));
  }
}

}  // namespace metro
