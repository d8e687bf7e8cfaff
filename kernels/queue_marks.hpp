// Places in the queue and when it came past them: how long work took for which the host did not wait. Where kernels run
// on the host they are over when the host goes on, and its clock tells the same.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace metro {

class QueueMarks {
 public:
  QueueMarks();
  ~QueueMarks();
  QueueMarks(QueueMarks&& other) noexcept;
  QueueMarks& operator=(QueueMarks&& other) noexcept;

  // Marks what has been enqueued so far.
  void add();
  std::int64_t size() const { return num_marks_; }

  // Waits for the kernels. seconds [size() - 1]: from each mark to the next. Then only the last mark is left. None of
  // this allocates once there have been as many marks before.
  void take(std::vector<double>& seconds);

 private:
  struct Native;
  std::unique_ptr<Native> native_;
  std::int64_t num_marks_ = 0;
};

}  // namespace metro
