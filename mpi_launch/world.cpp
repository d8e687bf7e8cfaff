#include "mpi_launch/world.hpp"

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/last_words.hpp"
#include "mpi_launch/kokkos_runtime.hpp"
#include "transport/host_name.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/mpi_check.hpp"
#include "transport/node_layout.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>

namespace metro {

namespace {

// This process's rank as its launcher (Open MPI, MPICH, Slurm) tells it before MPI has started; 0 if none does.
std::int64_t launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* const text = std::getenv(name); text != nullptr) {
      return std::max<std::int64_t>(std::strtoll(text, nullptr, 10), 0);
    }
  }
  return 0;
}

}  // namespace

World::World(int* argc, char*** argv, double timeout_s)
    : timeout_s_(timeout_s), exceptions_at_start_(std::uncaught_exceptions()) {
  int initialised = 0;
  check_mpi(MPI_Initialized(&initialised), "MPI_Initialized");
  METRO_REQUIRE(initialised == 0, "a process can have one World only");

  // Until MPI says better; what matters is that messages name the right one of several processes.
  set_identity(launched_rank(), host_name());
  int level = MPI_THREAD_SINGLE;
  const Deadline deadline("the start of MPI", timeout_s);
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (level < MPI_THREAD_FUNNELED) {
    throw Error(ExitCode::machine, mpi_version() + " offers thread level " + std::to_string(level) +
                                       ", but metro needs MPI_THREAD_FUNNELED (" + std::to_string(MPI_THREAD_FUNNELED) +
                                       ")");
  }

  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  rank_ = rank;
  size_ = size;
  set_identity(rank_, host_name());
  find_hosts();
  find_nodes();
}

World::~World() {
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    return;
  }
  finalise_kokkos();
  set_current_phase("end");
  try {
    const Deadline deadline("MPI_Finalize", timeout_s_);
    check_mpi(MPI_Finalize(), "MPI_Finalize");
  } catch (const std::exception& failure) {
    write_last_words(failure.what());
    abort(static_cast<int>(ExitCode::machine));
  }
}

void World::start_kokkos(std::int64_t num_threads, std::int64_t device) {
  initialise_kokkos(num_threads, rank_ == 0, device);
}

void World::find_hosts() {
  host_ = host_name();

  constexpr std::size_t name_bytes = 256;  // of one name with its zero at the end
  std::array<char, name_bytes> own{};
  host_.copy(own.data(), name_bytes - 1);
  std::vector<char> all(name_bytes * static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(own.data(), name_bytes, MPI_CHAR, all.data(), name_bytes, MPI_CHAR, MPI_COMM_WORLD),
            "MPI_Allgather");
  for (std::size_t offset = 0; offset < all.size(); offset += name_bytes) {
    rank_to_host_.emplace_back(all.data() + offset);
  }
}

void World::find_nodes() {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, static_cast<int>(rank_), MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  // Ordered by rank in the world, so the first of the node is its lowest.
  std::int64_t lowest = rank_;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT64_T, 0, node), "MPI_Bcast");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");

  std::vector<std::int64_t> rank_to_lowest_rank(static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(&lowest, 1, MPI_INT64_T, rank_to_lowest_rank.data(), 1, MPI_INT64_T, MPI_COMM_WORLD),
            "MPI_Allgather");
  rank_to_node_ = number_nodes(rank_to_lowest_rank);
  num_nodes_ = 1 + *std::max_element(rank_to_node_.begin(), rank_to_node_.end());
}

std::string World::mpi_version() const {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  const std::string version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));  // the rest is about its packaging
}

std::string World::kokkos_description() const {
  return metro::kokkos_description();
}

void World::abort(int exit_code) {
  abort_job(exit_code);
}

}  // namespace metro
