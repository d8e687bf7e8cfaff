// When the queue came by certain points: where the time of a step goes, without waiting for it in between.
#pragma once

#include <cstdint>
#include <memory>

namespace metro {

class QueueMarks {
 public:
  // Throws Error(machine) if the device has no more events.
  explicit QueueMarks(std::int64_t num_marks);
  ~QueueMarks();
  QueueMarks(QueueMarks&& other) noexcept;
  QueueMarks& operator=(QueueMarks&& other) noexcept;

  // Mark mark_idx is where the queue now ends. Not inside KernelGraph::record().
  void set(std::int64_t mark_idx);

  // Between two marks that were set, the first one before. After wait_for_kernels().
  double seconds_between(std::int64_t first_idx, std::int64_t second_idx) const;

 private:
  struct Native;
  std::unique_ptr<Native> native_;
};

}  // namespace metro
