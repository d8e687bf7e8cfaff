// A run of kernels and copies that is recorded once and then launched as one: on a device launching kernels one by one
// can take longer than running them. Arguments are frozen when it is recorded, what they point to is not.
#pragma once

#include <functional>
#include <memory>

namespace metro {

class KernelGraph {
 public:
  KernelGraph();
  ~KernelGraph();
  KernelGraph(KernelGraph&& other) noexcept;
  KernelGraph& operator=(KernelGraph&& other) noexcept;

  // Whether there is anything to gain: false where kernels run on the host. record() is then a Bug.
  static bool is_supported();

  // Calls `work` and keeps what it enqueues instead of running it. Inside, nothing may wait, allocate, or copy from or
  // to memory that is not pinned; its kernels have run before, since their first launch may allocate. Throws
  // Error(machine) if the device refuses; the queue is then usable as before.
  void record(const std::function<void()>& work);
  bool is_recorded() const { return native_ != nullptr; }

  // In the queue, like a kernel.
  void launch() const;

 private:
  struct Native;
  std::unique_ptr<Native> native_;
};

}  // namespace metro
