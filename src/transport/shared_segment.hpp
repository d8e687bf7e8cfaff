// Memory that several processes of one machine map (POSIX shared memory). It has a name only until all have found it,
// so that nothing is left when they are killed later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace metro {

class SharedSegment {
 public:
  // Under a new name, which the others are to be told. Takes no memory yet. Throws Error(machine).
  static SharedSegment create(std::int64_t num_bytes);
  // What another process of the same user has created with the same num_bytes. Throws Error(machine).
  static SharedSegment open(const std::string& name, std::int64_t num_bytes);
  // Gives the memory back, and the name if it is still there and this object's.
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;

  const std::string& name() const { return name_; }  // at most 63 bytes
  // For the creator, once all have opened it. Throws Error(machine).
  void remove_name();

  // Takes the pages of part `part` of `num_parts` from the system now, near this process, so that a lack of memory in
  // the file system is an error here and no signal later. Throws Error(machine).
  void take_pages(std::int64_t part, std::int64_t num_parts);

  // Aligned to a page.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  SharedSegment(std::string name, int file, bool owns_name);
  void map(std::int64_t num_bytes);

  std::string name_;
  int file_ = -1;
  bool owns_name_ = false;
  std::span<std::byte> mapped_;  // whole pages
  std::span<std::byte> bytes_;
};

}  // namespace metro
