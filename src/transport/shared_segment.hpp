// Memory that several processes of one machine map: a file in /dev/shm that never has a name, so that nothing is left
// whenever and however they end. The others find it through the process that made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace metro {

class SharedSegment {
 public:
  // Where the others find it. Sent as bytes.
  struct Address {
    std::int64_t process = 0;
    std::int64_t file = 0;                // as that process knows it
    std::uint64_t device = 0, inode = 0;  // to be sure that it is the one that is meant
  };

  // Takes no memory yet. Throws Error(machine).
  static SharedSegment create(std::int64_t num_bytes);
  // What another process of the same user and process namespace has created with the same num_bytes, and still has.
  // Throws Error(machine).
  static SharedSegment open(const Address& address, std::int64_t num_bytes);
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;

  Address address() const { return address_; }

  // Takes the pages of part `part` of `num_parts` from the system now, near this process, so that a lack of memory in
  // the file system is an error here and no signal later. Throws Error(machine).
  void take_pages(std::int64_t part, std::int64_t num_parts);

  // Aligned to a page.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedSegment(int file) : file_(file) {}
  void map(std::int64_t num_bytes);

  int file_;
  Address address_;
  std::span<std::byte> mapped_;  // whole pages
  std::span<std::byte> bytes_;
};

}  // namespace metro
