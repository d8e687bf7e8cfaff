// `metro run`: becomes part of the job, agrees on the deck, runs it.
#include "base/build_info.hpp"
#include "cli/run_command.hpp"
#include "deck/deck.hpp"
#include "engine/job.hpp"
#include "kernels/cpu_settings.hpp"
#include "mpi_launch/world.hpp"
#include "transport/agree.hpp"
#include "transport/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

namespace metro {

namespace {

// Until the deck says otherwise.
constexpr double start_timeout_s = 120.0;

std::unique_ptr<Transport> transport_for(const World& world, double timeout_s) {
  return world.size() == 1 ? make_self_transport() : make_mpi_transport(timeout_s);
}

// Rank 0 reads the deck; what reaches the others is the resolved deck, so that all work from the same text.
Deck agreed_deck(const RunOptions& options, Transport& transport) {
  require_same(transport, "build", build_description());
  const std::string resolved =
      from_rank_0(transport, [&] { return deck_to_toml(read_deck(options.deck_path, options.overrides)); });
  return parse_deck(resolved, "resolved deck", {});
}

// Collective. Sets what the kernels of this rank use; returns it for the start-up table. "auto" is the least of all
// ranks.
std::string set_up_kernels(const Deck& deck, Transport& transport) {
  SimdLevel level = SimdLevel::scalar;
  agree(transport, [&] {
    level = simd_level_of(deck.run.simd);
    if (level > best_simd_level()) {
      throw Error(ExitCode::usage, fmt::format("run.simd = \"{}\": the best that this CPU has is {}", deck.run.simd,
                                               name_of(best_simd_level())));
    }
  });
  const std::vector<std::int64_t> levels = gather_integers(transport, static_cast<std::int64_t>(level));
  level = static_cast<SimdLevel>(*std::min_element(levels.begin(), levels.end()));
  set_simd_level(level);
  set_num_kernel_threads(deck.run.threads);
  return fmt::format("kernels {} on {} thread{}", name_of(level), deck.run.threads, deck.run.threads == 1 ? "" : "s");
}

ExitCode run_in(World& world, const RunOptions& options) {
  std::unique_ptr<Transport> transport = transport_for(world, start_timeout_s);
  const Deck deck = agreed_deck(options, *transport);
  agree(*transport, [&] { world.start_kokkos(deck.run.threads); });
  transport = transport_for(world, deck.run.timeout_s);
  const std::string kernels = set_up_kernels(deck, *transport);
  if (options.dry_run && world.rank() == 0) {
    std::fputs(deck_to_toml(deck).c_str(), stdout);
  }
  const JobContext job{world.rank_to_node(), world.rank_to_host(),
                       world.mpi_version() + ", " + world.kokkos_description() + ", " + kernels};
  return run_job(deck, {options.dry_run, options.overwrite, options.strict}, job, *transport);
}

}  // namespace

ExitCode run_command(const RunOptions& options, int* argc, char*** argv, JobIdentity& job) {
  job.running = true;  // from MPI_Init on, others may wait for this process
  World world(argc, argv);
  job = {true, world.rank(), world.host()};
  ExitCode exit_code = ExitCode::done;
  try {
    exit_code = run_in(world, options);
  } catch (const AgreedError& error) {
    // Every rank is here: one speaks, all leave in an orderly way.
    if (world.rank() == 0) {
      std::fprintf(stderr, "metro: error: %s\n", one_line(error.what()).c_str());
    }
    exit_code = error.exit_code();
  }
  job.running = false;
  return exit_code;
}

}  // namespace metro
