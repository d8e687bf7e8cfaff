// An end to waiting in a call that blocks and cannot be polled: if it has not come back in time, the process ends.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace metro {

class Deadline {
 public:
  // From now until the object's end: after `seconds` (> 0) the process writes its last words, "waited 120 s in
  // MPI_Finalize: ...", and ends with exit code 5. `call` is a literal. Time in which the process itself was stopped
  // does not count.
  // Of ranks that run into it together, usually just the lowest writes: the others leave it up to a second, see whether
  // SIGTERM has come from the launcher, which has seen one end, and then end without a word.
  Deadline(const char* call, double seconds);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  void watch(double seconds);

  std::string last_words_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread watcher_;
};

}  // namespace metro
