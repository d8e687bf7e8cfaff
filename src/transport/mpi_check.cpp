#include "transport/mpi_check.hpp"

#include "base/error.hpp"

#include <mpi.h>

#include <array>
#include <filesystem>
#include <string>

namespace metro {

bool mpi_is_running() {
  int initialised = 0;
  int finalised = 0;
  return MPI_Initialized(&initialised) == MPI_SUCCESS && MPI_Finalized(&finalised) == MPI_SUCCESS && initialised != 0 &&
         finalised == 0;
}

void check_mpi(int code, const char* call, std::source_location where) {
  if (code == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (!mpi_is_running() || MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    length = 0;
  }
  std::string reason(text.data(), static_cast<std::size_t>(length));
  if (reason.empty()) {
    reason = "error code " + std::to_string(code);
  }
  throw Error(ExitCode::machine, std::string(call) + " failed: " + reason + " (" +
                                     std::filesystem::path(where.file_name()).filename().string() + ":" +
                                     std::to_string(where.line()) + ")");
}

}  // namespace metro
