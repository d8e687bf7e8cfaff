// Memory of the execution space, in short memory of kernels: owned, labelled, zeroed unless asked otherwise, 64-byte
// aligned (host) and never moved. Needs Kokkos: a buffer with memory is made after Kokkos::initialize and destroyed
// before Kokkos::finalize.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace metro {

// What a new buffer holds. `unspecified` is for memory that is written in full before anything reads it: filling
// gigabytes takes seconds, and pages are then touched first by the threads that write them.
enum class FirstContent { zeros, unspecified };

class RawBuffer {
 public:
  RawBuffer() = default;
  // Throws Error(machine) naming the label and the size when there is not enough memory.
  RawBuffer(const std::string& label, std::int64_t num_bytes, FirstContent content = FirstContent::zeros);
  ~RawBuffer();
  RawBuffer(RawBuffer&& other) noexcept { swap(other); }
  RawBuffer& operator=(RawBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  std::byte* data() const { return data_; }
  std::int64_t num_bytes() const { return num_bytes_; }

 private:
  void swap(RawBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
  }
  std::byte* data_ = nullptr;
  std::int64_t num_bytes_ = 0;
};

// size elements of T. Host code must not follow data(): an array that it looks into is a Mirror (mirror.hpp).
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const std::string& label, std::int64_t size)
      : raw_(label, size * static_cast<std::int64_t>(sizeof(T))), size_(size) {}
  T* data() const { return reinterpret_cast<T*>(raw_.data()); }
  std::int64_t size() const { return size_; }
  std::int64_t num_bytes() const { return raw_.num_bytes(); }

 private:
  RawBuffer raw_;
  std::int64_t size_ = 0;
};

// Memory of the host that a device copies from and to directly: the host's half of a Mirror (mirror.hpp), which is not
// used where kernels use the memory of the host.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // Zeroed. Throws Error(machine) naming the label and the size when there is not enough memory.
  PinnedBuffer(const std::string& label, std::int64_t num_bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

// Bytes that a device still has for this process; nothing where kernels use the memory of the host. Throws
// Error(machine) if the device does not tell.
std::optional<std::int64_t> kernel_memory_room();

// Copies between memory of kernels and ordinary memory of the host, after what is in the queue, and waits
// for the end.
void copy_bytes_from_host(std::byte* to, const std::byte* from_host, std::int64_t num_bytes);
void copy_bytes_to_host(std::byte* to_host, const std::byte* from, std::int64_t num_bytes);

template <class T>
void copy_from_host(T* to, std::span<const T> from_host) {
  copy_bytes_from_host(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from_host.data()),
                       static_cast<std::int64_t>(from_host.size_bytes()));
}
template <class T>
void copy_to_host(std::span<T> to_host, const T* from) {
  copy_bytes_to_host(reinterpret_cast<std::byte*>(to_host.data()), reinterpret_cast<const std::byte*>(from),
                     static_cast<std::int64_t>(to_host.size_bytes()));
}

}  // namespace metro
