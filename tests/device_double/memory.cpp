// Device memory, pinned memory, and copies.
#include "double_state.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

namespace metro::device_double {

namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t huge_page = std::size_t{1} << 21;
constexpr std::size_t reserved_bytes = std::size_t{64} << 30;  // addresses, not memory
constexpr std::size_t most_filled_bytes = std::size_t{4} << 20;

using Address = std::uintptr_t;
using Pieces = std::map<Address, std::size_t>;  // where each begins, and its size

std::size_t rounded_up(std::size_t size, std::size_t to) {
  return (size + to - 1) / to * to;
}

bool lies_in(const Pieces& pieces, const void* pointer, std::size_t num_bytes) {
  const auto address = reinterpret_cast<Address>(pointer);
  const auto behind = pieces.upper_bound(address);
  if (behind == pieces.begin()) {
    return false;
  }
  const auto& [begin, size] = *std::prev(behind);
  return address + num_bytes <= begin + size;
}

// The device memory of this process.
class Arena {
 public:
  Arena() {
    void* const memory =
        ::mmap(nullptr, reserved_bytes + huge_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      complain(cudaErrorInitializationError, "no addresses for device memory");
      std::abort();
    }
    begin_ = rounded_up(reinterpret_cast<Address>(memory), huge_page);
    // Changing the protection of few large pages is fast. Advice only.
    static_cast<void>(::madvise(reinterpret_cast<void*>(begin_), reserved_bytes, MADV_HUGEPAGE));
  }

  // nullptr: not enough. Pieces do not touch, so that none is taken for the end of another.
  void* allocate(std::size_t size) {
    const auto limit = std::min(static_cast<std::size_t>(settings().memory_bytes), reserved_bytes);
    if (size > limit || used_bytes_ + size > limit) {
      return nullptr;
    }
    Address place = begin_;
    for (const auto& [begin, num_bytes] : pieces_) {
      if (begin - place >= size + alignment) {
        break;
      }
      place = rounded_up(begin + num_bytes + 1, alignment);
    }
    if (place + size > begin_ + reserved_bytes) {
      return nullptr;
    }
    pieces_[place] = size;
    used_bytes_ += size;
    end_ = std::max(end_, place + size);
    return reinterpret_cast<void*>(place);
  }

  bool release(void* pointer) {
    const auto piece = pieces_.find(reinterpret_cast<Address>(pointer));
    if (piece == pieces_.end()) {
      return false;
    }
    used_bytes_ -= piece->second;
    pieces_.erase(piece);
    return true;
  }

  void protect(int protection) const {
    if (end_ > begin_ &&
        ::mprotect(reinterpret_cast<void*>(begin_), rounded_up(end_ - begin_, huge_page), protection)) {
      complain(cudaErrorUnknown, "mprotect of device memory failed");
      std::abort();
    }
  }

  const Pieces& pieces() const { return pieces_; }
  std::size_t used_bytes() const { return used_bytes_; }

 private:
  Address begin_ = 0;
  Address end_ = 0;  // of what was ever allocated
  std::size_t used_bytes_ = 0;
  Pieces pieces_;
};

// Never destroyed: static objects of a program may still free memory.
Arena& arena() {
  static Arena& the_arena = *new Arena;
  return the_arena;
}

Pieces& pinned() {
  static Pieces& pieces = *new Pieces;
  return pieces;
}

int& num_accesses() {
  static int number = 0;
  return number;
}

struct Copy {
  void* to;
  const void* from;
  std::size_t size;
  cudaMemcpyKind kind;
};

bool writes_device(const Copy& copy) {
  return copy.kind == cudaMemcpyHostToDevice || copy.kind == cudaMemcpyDeviceToDevice;
}

bool reads_device(const Copy& copy) {
  return copy.kind == cudaMemcpyDeviceToHost || copy.kind == cudaMemcpyDeviceToDevice;
}

cudaError_t check_device(const char* function, const void* pointer, std::size_t size) {
  return lies_in(arena().pieces(), pointer, size)
             ? cudaSuccess
             : complain(cudaErrorInvalidValue, std::string(function) + " of " + std::to_string(size) +
                                                   " bytes that are not in one piece of device memory");
}

cudaError_t check_host(const char* function, const void* pointer, std::size_t size, bool must_be_pinned) {
  if (is_device_memory(pointer, 0)) {
    return complain(cudaErrorInvalidValue, std::string(function) + " was given device memory as memory of the host");
  }
  if (must_be_pinned && !lies_in(pinned(), pointer, size)) {
    return complain(cudaErrorInvalidValue,
                    std::string(function) + " of " + std::to_string(size) + " bytes of the host that are not pinned");
  }
  return cudaSuccess;
}

cudaError_t check(const char* function, const Copy& copy, bool must_be_pinned) {
  if (copy.kind != cudaMemcpyHostToDevice && copy.kind != cudaMemcpyDeviceToHost &&
      copy.kind != cudaMemcpyDeviceToDevice) {
    return complain(cudaErrorInvalidMemcpyDirection, std::string(function) + ": kind " + std::to_string(copy.kind));
  }
  const cudaError_t to = writes_device(copy) ? check_device(function, copy.to, copy.size)
                                             : check_host(function, copy.to, copy.size, must_be_pinned);
  if (to != cudaSuccess) {
    return to;
  }
  return reads_device(copy) ? check_device(function, copy.from, copy.size)
                            : check_host(function, copy.from, copy.size, must_be_pinned);
}

}  // namespace

DeviceAccess::DeviceAccess() {
  if (num_accesses()++ == 0) {
    arena().protect(PROT_READ | PROT_WRITE);
  }
}

DeviceAccess::~DeviceAccess() {
  if (--num_accesses() == 0) {
    arena().protect(PROT_NONE);
  }
}

bool is_device_memory(const void* pointer, std::int64_t num_bytes) {
  return lies_in(arena().pieces(), pointer, static_cast<std::size_t>(num_bytes));
}

bool is_pinned_memory(const void* pointer, std::int64_t num_bytes) {
  return lies_in(pinned(), pointer, static_cast<std::size_t>(num_bytes));
}

}  // namespace metro::device_double

using namespace metro::device_double;

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  return call("cudaMalloc", [&] {
    if (const cudaError_t refusal = refuse_in_capture(); refusal != cudaSuccess) {
      return refusal;
    }
    *devPtr = arena().allocate(size);
    if (*devPtr == nullptr) {
      return cudaErrorMemoryAllocation;
    }
    const DeviceAccess access;
    std::memset(*devPtr, 0xff, std::min(size, most_filled_bytes));
    return cudaSuccess;
  });
}

// Waits for everything, as the real one does.
cudaError_t cudaFree(void* devPtr) {
  return call("cudaFree", [&] {
    if (const cudaError_t refusal = refuse_in_capture(); refusal != cudaSuccess) {
      return refusal;
    }
    if (const cudaError_t result = run_all_streams(); result != cudaSuccess || devPtr == nullptr) {
      return result;
    }
    return arena().release(devPtr) ? cudaSuccess
                                   : complain(cudaErrorInvalidValue, "cudaFree of what cudaMalloc did not give");
  });
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
  return call("cudaMallocHost", [&] {
    if (const cudaError_t refusal = refuse_in_capture(); refusal != cudaSuccess) {
      return refusal;
    }
    *ptr = std::aligned_alloc(alignment, rounded_up(size, alignment));
    if (*ptr == nullptr) {
      return cudaErrorMemoryAllocation;
    }
    std::memset(*ptr, 0xff, std::min(size, most_filled_bytes));
    pinned()[reinterpret_cast<Address>(*ptr)] = size;
    return cudaSuccess;
  });
}

// Does not wait: a copy that is still queued then finds its memory gone.
cudaError_t cudaFreeHost(void* ptr) {
  return call("cudaFreeHost", [&] {
    if (const cudaError_t refusal = refuse_in_capture(); refusal != cudaSuccess || ptr == nullptr) {
      return refusal;
    }
    if (pinned().erase(reinterpret_cast<Address>(ptr)) == 0) {
      return complain(cudaErrorInvalidValue, "cudaFreeHost of what cudaMallocHost did not give");
    }
    std::free(ptr);
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call("cudaMemGetInfo", [&] {
    *total = static_cast<std::size_t>(settings().memory_bytes);
    *free = *total - std::min(*total, arena().used_bytes());
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  return call("cudaPointerGetAttributes", [&] {
    void* const pointer = const_cast<void*>(ptr);
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, pointer};
    if (is_device_memory(ptr, 0)) {
      *attributes = {cudaMemoryTypeDevice, 0, pointer, nullptr};
    } else if (is_pinned_memory(ptr, 0)) {
      *attributes = {cudaMemoryTypeHost, 0, pointer, pointer};
    }
    return cudaSuccess;
  });
}

// Does not wait for streams that were made non-blocking, as the real one does not.
cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  return call("cudaMemcpy", [&] {
    if (const cudaError_t refusal = refuse_in_capture(); refusal != cudaSuccess) {
      return refusal;
    }
    if (const cudaError_t result = check("cudaMemcpy", {dst, src, count, kind}, false); result != cudaSuccess) {
      return result;
    }
    const DeviceAccess access;
    std::memmove(dst, src, count);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&] {
    const Copy copy{dst, src, count, kind};
    if (const cudaError_t result = check("cudaMemcpyAsync", copy, true); result != cudaSuccess) {
      return result;
    }
    return enqueue(stream, [copy] {
      if (check("a queued cudaMemcpyAsync", copy, true) != cudaSuccess) {
        break_device(cudaErrorIllegalAddress);  // freed since
        return Progress::done;
      }
      const DeviceAccess access;
      std::memmove(copy.to, copy.from, copy.size);
      return Progress::done;
    });
  });
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  return call("cudaMemsetAsync", [&] {
    if (const cudaError_t result = check_device("cudaMemsetAsync", devPtr, count); result != cudaSuccess) {
      return result;
    }
    return enqueue(stream, [devPtr, value, count] {
      if (check_device("a queued cudaMemsetAsync", devPtr, count) != cudaSuccess) {
        break_device(cudaErrorIllegalAddress);
        return Progress::done;
      }
      const DeviceAccess access;
      std::memset(devPtr, value, count);
      return Progress::done;
    });
  });
}
