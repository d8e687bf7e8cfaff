// Work on several threads of this process. Of the program's own code; kernels have theirs (kernels/cpu/team.hpp).
#pragma once

#include <cstdint>
#include <functional>

namespace metro {

// Runs work(item, thread_idx) for item 0 .. num_items - 1, begun in this order, on at most num_threads >= 1 threads;
// thread 0 is the calling one. After a failure no further item begins, and once all threads have ended the exception of
// the lowest item that failed is thrown: the one that a single thread would have met.
// Throws Error(machine) when the system gives no more threads.
void for_each_on_threads(std::int64_t num_items, std::int64_t num_threads,
                         const std::function<void(std::int64_t item, std::int64_t thread_idx)>& work);

}  // namespace metro
