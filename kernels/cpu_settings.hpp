// How the kernels run on a CPU: which vector instructions, how many threads. Neither changes a bit of any result.
// Process-wide, set at start from one thread, before kernels run.
#pragma once

#include <cstdint>
#include <string_view>

namespace metro {

// Ordered: a CPU that can run a level can run those below it. `scalar` is plain C++ and runs everywhere.
enum class SimdLevel : std::int32_t { scalar = 0, avx2 = 1, avx512 = 2 };

const char* name_of(SimdLevel level);  // "scalar", "avx2", "avx512"

// The level of that name; "auto" is the best of this CPU. Throws Error(usage) for another name.
SimdLevel simd_level_of(std::string_view name);

// The highest level that this CPU can run and this build has.
SimdLevel best_simd_level();

// In use; best_simd_level() until it is set. Levels above the best are a Bug.
SimdLevel simd_level();
void set_simd_level(SimdLevel level);

// Most threads of a kernel, the calling one included; 1 until it is set. A thread is used only where it has that many
// bytes of weights to read: what takes a few microseconds is not worth waking another thread.
std::int64_t num_kernel_threads();
std::int64_t least_bytes_of_thread();
void set_num_kernel_threads(std::int64_t num_threads, std::int64_t least_bytes = 128 * 1024);

}  // namespace metro
