// The process as a member of a job: MPI and Kokkos are set up here, in this order, and taken down in reverse.
// The only room besides the MPI transport that includes <mpi.h>.
//
// How a job ends:
//  - All well, or an error that all ranks share (AgreedError, caught by every rank inside the life of World): the
//    destructor finalises, every rank returns the same exit code.
//  - Anything else leaves World by an exception on some ranks only. The destructor then finalises nothing, since that
//    would wait for ranks that never come; whoever catches it (main) prints it and calls World::abort().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

class World {
 public:
  // How long ranks wait for each other until the time-out of a deck is known.
  static constexpr double default_timeout_s = 120.0;

  // Initialises MPI (MPI_THREAD_FUNNELED). One per process, since MPI starts only once; a second is a Bug. A failing
  // MPI call is Error(machine); after timeout_s in here the process ends (base/deadline.hpp).
  World(int* argc, char*** argv, double timeout_s = default_timeout_s);
  // Initialises Kokkos, once: the number of its host threads (the deck) is known when the ranks can agree on errors.
  // device: the number of the one that kernels run on, as this process sees it (devices.hpp); without meaning where
  // they run on the host.
  void start_kokkos(std::int64_t num_threads, std::int64_t device = 0);
  // Finalises Kokkos and MPI, unless an exception is unwinding: finalising would wait for ranks that never come.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // After which time in MPI_Finalize the process ends.
  void set_timeout(double timeout_s) { timeout_s_ = timeout_s; }

  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return size_; }
  const std::string& host() const { return host_; }
  // Node of each rank (ranks that share memory), numbered by their lowest rank. [size]
  const std::vector<std::int64_t>& rank_to_node() const { return rank_to_node_; }
  std::int64_t num_nodes() const { return num_nodes_; }
  // Host name of each rank. [size]
  const std::vector<std::string>& rank_to_host() const { return rank_to_host_; }
  std::string mpi_version() const;         // "Open MPI v4.1.4"
  std::string kokkos_description() const;  // "Kokkos 3.4.1 (Serial)"

  // Ends the whole job at once with this exit code. Usable at any time, also before and after World's life.
  [[noreturn]] static void abort(int exit_code);

 private:
  void find_hosts();
  void find_nodes();

  std::int64_t rank_ = 0;
  std::int64_t size_ = 1;
  std::string host_;
  std::vector<std::int64_t> rank_to_node_;
  std::int64_t num_nodes_ = 1;
  std::vector<std::string> rank_to_host_;
  double timeout_s_;
  int exceptions_at_start_ = 0;
};

// CPUs that this process may run on: what its launcher bound it to. At least 1.
std::int64_t num_usable_cpus();

}  // namespace metro
