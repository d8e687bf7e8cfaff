// A file descriptor that closes itself, and whole reads and writes at an offset. Linux moves at most 2 GiB in one call
// and may move less than asked: both loop, in pieces of at most `max_bytes`.
#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace metro {

class FileDescriptor {
 public:
  static constexpr std::int64_t default_max_bytes = std::int64_t{1} << 30;

  // Opens for reading a regular file. Throws Error(on_failure).
  static FileDescriptor open_to_read(const std::string& path, ExitCode on_failure);
  // Opens a new file for writing (base/file.hpp, make_new_file). Throws Error(usage).
  static FileDescriptor create(const std::string& path);

  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor();

  const std::string& path() const { return path_; }
  // Throws Error(on_failure).
  std::int64_t size(ExitCode on_failure) const;
  // Fills `out` from `offset` on. Throws Error(on_failure), also when the file ends before that.
  void read_at(std::int64_t offset, std::span<std::byte> out, ExitCode on_failure,
               std::int64_t max_bytes = default_max_bytes) const;
  // Takes the first `num_bytes` of the disk for the file now, where the file system can do that, so that a full disk is
  // found at once. Throws Error(machine).
  void reserve(std::int64_t num_bytes) const;
  // Throws Error(machine).
  void write_at(std::int64_t offset, std::span<const std::byte> bytes) const;
  // Forces everything to the disk and closes. Throws Error(machine).
  void sync_and_close();

 private:
  FileDescriptor(int number, std::string path) : number_(number), path_(std::move(path)) {}

  int number_;
  std::string path_;
};

}  // namespace metro
