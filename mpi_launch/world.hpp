// The process as a member of a job: MPI and Kokkos are set up here, in this order, and taken down in reverse.
// The only room besides the MPI transport that includes <mpi.h>.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

class World {
 public:
  // Initialises MPI (MPI_THREAD_FUNNELED) and Kokkos. Exactly one may exist at a time. num_threads: host threads of
  // Kokkos; more than 1 needs a Kokkos with a threaded host backend, else Error(usage).
  World(int* argc, char*** argv, std::int64_t num_threads);
  // Finalises Kokkos and MPI, unless an exception is unwinding: finalising would wait for ranks that never come.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return size_; }
  const std::string& host() const { return host_; }
  // Node of each rank (ranks that share memory), numbered by their lowest rank. [size]
  const std::vector<std::int64_t>& rank_to_node() const { return rank_to_node_; }
  std::int64_t num_nodes() const { return num_nodes_; }
  // Host name of each rank. [size]
  const std::vector<std::string>& rank_to_host() const { return rank_to_host_; }
  std::string mpi_version() const;
  std::string kokkos_description() const;  // "Kokkos 3.4.1 (Serial)"

  // Ends the whole job at once with this exit code. Usable at any time, also before and after World's life.
  [[noreturn]] static void abort(int exit_code);

 private:
  std::int64_t rank_ = 0;
  std::int64_t size_ = 1;
  std::string host_;
  std::vector<std::int64_t> rank_to_node_;
  std::int64_t num_nodes_ = 1;
  std::vector<std::string> rank_to_host_;
  int exceptions_at_start_ = 0;
};

}  // namespace metro
