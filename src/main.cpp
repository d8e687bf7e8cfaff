// metro: batch inference of Mixture-of-Experts models. Command line in, exit code out (the codes: base/error.hpp).
// Failures are thrown where they are found and reported here, the only place that catches them.
#include "base/last_words.hpp"
#include "cli/command_line.hpp"
#include "cli/standard_output.hpp"
#include "mpi_launch/world.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <variant>

namespace {

using metro::ExitCode;

// Calls the subcommand that the command line asked for.
struct Dispatch {
  metro::Process process;

  ExitCode operator()(const metro::RunOptions& options) const { return metro::run_command(options, process); }
  ExitCode operator()(const metro::ConvertOptions& options) const { return metro::convert_command(options); }
  ExitCode operator()(const metro::InspectOptions& options) const { return metro::inspect_command(options); }
  ExitCode operator()(const metro::PlanOptions& options) const { return metro::plan_command(options); }
  ExitCode operator()(const metro::ReplayOptions& options) const { return metro::replay_command(options); }
  ExitCode operator()(const metro::ImportTraceOptions& options) const { return metro::import_trace_command(options); }
  ExitCode operator()(const metro::BenchDecodeOptions& options) const {
    return metro::bench_decode_command(options, process);
  }
  ExitCode operator()(const metro::LoadBenchOptions& options) const {
    return metro::bench_load_command(options, process);
  }
  ExitCode operator()(const metro::ExchangeBenchOptions& options) const {
    return metro::bench_exchange_command(options, process);
  }
  ExitCode operator()(const metro::ReplicatedBenchOptions& options) const {
    return metro::bench_replicated_command(options);
  }
  ExitCode operator()(const metro::ScalingBenchOptions& options) const { return metro::bench_scaling_command(options); }
  ExitCode operator()(const metro::GpuBenchOptions& options) const { return metro::bench_gpu_command(options); }
  ExitCode operator()(const metro::ConvertBenchOptions& options) const { return metro::bench_convert_command(options); }
  ExitCode operator()(const metro::BenchRouteOptions& options) const { return metro::bench_route_command(options); }
  ExitCode operator()(const metro::KernelBenchOptions& options) const { return metro::bench_kernels_command(options); }
  ExitCode operator()(const metro::TextToPrint& output) const {
    metro::print_to_stdout(output.text);
    return ExitCode::done;
  }
};

// A closed standard descriptor would be given to the next thing that is opened, such as a pipe of MPI, and be read or
// written as if it were ours. With /dev/null the wrong way round, using it is an error that is reported.
void occupy_standard_descriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) {
      ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

// Reports a failure that the other ranks do not know of. They wait for this one, so the job ends with it.
int fail(const metro::JobState& job, ExitCode exit_code, const std::string& message) {
  if (!job.running) {
    std::fprintf(stderr, "metro: error: %s\n", metro::one_line(message).c_str());
    return static_cast<int>(exit_code);
  }
  metro::write_last_words(metro::one_line(message).c_str());
  metro::World::abort(static_cast<int>(exit_code));
}

}  // namespace

int main(int argc, char** argv) {
  metro::JobState job;
  occupy_standard_descriptors();
  // A file beyond the size limit of the shell shall fail like a full disk, with a message, and not kill the process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    // 1. Command line: a subcommand with its options, or text to print.
    const metro::ParsedCommand command = metro::parse_command_line(argc, argv);

    // 2. The subcommand. Only `run` makes this process a rank; it fills `job` and takes MPI and Kokkos down again.
    const ExitCode exit_code = std::visit(Dispatch{{&argc, &argv, job}}, command);

    // 3. Exit code.
    return static_cast<int>(exit_code);

    // 4. Failures.
  } catch (const metro::Error& error) {
    return fail(job, error.exit_code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(job, ExitCode::machine, "out of memory");
  } catch (const std::exception& error) {
    return fail(job, ExitCode::internal, std::string("internal error: ") + error.what());
  }
}
