// `metro bench load`: how fast a rank loads its weights from a checkpoint file, as a share of a plain read of the same
// bytes by the same threads. Both take turns, into memory that was touched before, from a warm page cache.
#pragma once

#include "transport/transport.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace metro {

struct LoadBenchOptions {
  std::string checkpoint_path;
  std::vector<std::int64_t> threads{1};  // of a rank
  std::int64_t repetitions = 7;          // at least
  std::string json_path;                 // empty: no file
};

// Seconds of the slowest rank.
struct LoadSample {
  double plain_s = 0.0;  // pread of everything that is loaded
  double load_s = 0.0;   // reading, digests, packing
};

struct LoadResult {
  std::int64_t num_threads = 1;
  std::vector<LoadSample> samples;
};

struct LoadTimes {
  std::int64_t bytes_max = 0, bytes_sum = 0;  // read by a rank, over ranks
  double first_load_s = 0.0;                  // into memory that nobody has touched, with the first number of threads
  std::vector<LoadResult> results;
};

// Collective, the same options on all ranks. Every rank loads its experts of a trivial placement without replicas and
// all other tensors. Prints a table on rank 0 and writes options.json_path. Kokkos must be running. Throws
// AgreedError: usage for options out of range, checkpoint for the file.
void bench_load(const LoadBenchOptions& options, Transport& transport, std::FILE* out);

// Collective. Times all numbers of threads; options are in range.
LoadTimes time_loading(const LoadBenchOptions& options, Transport& transport);

}  // namespace metro
