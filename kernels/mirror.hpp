// Small arrays that host code fills or reads and kernels read or fill. Where kernels use the memory of the host both
// sides are one array and copies do nothing; else there is a pinned array on the host and one in the memory of kernels.
#pragma once

#include "kernels/buffer.hpp"
#include "kernels/queue.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace metro {

template <class T>
class Mirror {
 public:
  Mirror() = default;
  Mirror(const std::string& label, std::int64_t size) : kernels_(label, size) {
    if (!kernels_use_host_memory()) {
      host_ = PinnedBuffer(label, kernels_.num_bytes());
    }
  }

  std::int64_t size() const { return kernels_.size(); }
  // For host code.
  T* host() const { return kernels_use_host_memory() ? kernels_.data() : reinterpret_cast<T*>(host_.data()); }
  std::span<T> span() const { return {host(), static_cast<std::size_t>(size())}; }
  T& operator[](std::int64_t i) const { return host()[i]; }
  // For kernels.
  T* kernels() const { return kernels_.data(); }

  // What host code wrote to elements first .. first + num - 1 is what kernels launched later see. Returns at once:
  // until wait_for_kernels() those elements are not to be changed.
  void to_kernels(std::int64_t num, std::int64_t first = 0) const {
    if (!kernels_use_host_memory()) {
      queue_copy_to_kernels(kernels() + first, host() + first, num * static_cast<std::int64_t>(sizeof(T)));
    }
  }
  // What kernels launched before wrote is what host code sees after wait_for_kernels().
  void to_host(std::int64_t num, std::int64_t first = 0) const {
    if (!kernels_use_host_memory()) {
      queue_copy_to_host(host() + first, kernels() + first, num * static_cast<std::int64_t>(sizeof(T)));
    }
  }

  // In the memory of kernels.
  std::int64_t num_bytes() const { return kernels_.num_bytes(); }

 private:
  PinnedBuffer host_;
  Buffer<T> kernels_;  // ends first: freeing memory of a device waits for copies that still use the other
};

}  // namespace metro
