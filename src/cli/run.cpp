// `metro run`: becomes part of the job, agrees on the deck, runs it.
#include "base/build_info.hpp"
#include "base/stop_signals.hpp"
#include "cli/kernel_settings.hpp"
#include "cli/on_ranks.hpp"
#include "cli/rank_binding.hpp"
#include "cli/run_command.hpp"
#include "deck/deck.hpp"
#include "engine/job.hpp"
#include "hdf5/hdf5_handle.hpp"
#include "kernels/cpu_settings.hpp"
#include "mpi_launch/core_dumps.hpp"
#include "mpi_launch/devices.hpp"
#include "mpi_launch/visible_devices.hpp"
#include "mpi_launch/world.hpp"
#include "transport/agree.hpp"
#include "transport/exchange_way.hpp"
#include "transport/mpi_device_memory.hpp"
#include "transport/nccl_exchange.hpp"
#include "transport/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

namespace metro {

namespace {

// Rank 0 reads the deck; what reaches the others is the resolved deck, so that all work from the same text.
Deck agreed_deck(const RunOptions& options, Transport& transport) {
  require_same(transport, "build", build_description());
  const std::string resolved =
      from_rank_0(transport, [&] { return deck_to_toml(read_deck(options.deck_path, options.overrides)); });
  return parse_deck(resolved, "resolved deck", {});
}

// Collective. Sets what the kernels of this rank use; returns it for the start-up table.
std::string set_up_kernels(const Deck& deck, Transport& transport) {
  use_simd_level(deck.run.simd, "run.simd =", transport);
  set_num_kernel_threads(deck.run.threads);
  warn_of_binding(deck.run.threads, transport);
  return fmt::format("kernels {} on {} thread{}", name_of(simd_level()), deck.run.threads,
                     deck.run.threads == 1 ? "" : "s");
}

// Collective. Which way rows in the memory of devices take, the same on all ranks.
ExchangeDecision agreed_way_of_rows(const Deck& deck, const DeviceMap& devices, Transport& transport) {
  const bool on_devices = !devices.empty();
  const ExchangeFacts facts{.on_devices = on_devices,
                            .has_nccl = has_nccl(),
                            .shares_devices = std::ranges::any_of(devices, &ChosenDevice::is_shared),
                            .mpi_is_aware = on_devices && mpi_takes_device_memory(transport)};
  ExchangeDecision decision;
  agree(transport, [&] { decision = choose_exchange_way(deck.exchange.transport, facts); });
  return decision;
}

// Libraries and their versions.
std::string software_text(const World& world, const std::string& kernels) {
  std::string text = world.mpi_version() + ", " + world.kokkos_description();
  for (const std::string& library : {device_software(), nccl_software()}) {
    text += library.empty() ? "" : ", " + library;
  }
  return text + ", " + kernels;
}

ExitCode run_in(World& world, const RunOptions& options, const CoreDumps& core_dumps) {
  std::unique_ptr<Transport> transport = transport_for(world, World::default_timeout_s);
  const Deck deck = agreed_deck(options, *transport);
  if (deck.run.core_dumps == "on") {
    core_dumps.allow();
  }
  const DeviceMap devices =
      map_devices(*transport, world.rank_to_node(), world.rank_to_host(), deck.device.share == "on");
  const ExchangeDecision rows = agreed_way_of_rows(deck, devices, *transport);
  agree(*transport, [&] { world.start_kokkos(deck.run.threads, device_of(devices, world.rank())); });
  transport = transport_for(world, deck.run.timeout_s);
  world.set_timeout(deck.run.timeout_s);
  const std::string kernels = set_up_kernels(deck, *transport);
  if (options.dry_run && world.rank() == 0) {
    std::fputs(deck_to_toml(deck).c_str(), stdout);
  }
  const JobContext job{world.rank_to_node(),
                       world.rank_to_host(),
                       software_text(world, kernels),
                       gather_bindings(*transport, devices),
                       rows,
                       ranks_on_same_device(devices, world.rank_to_node())};
  return run_job(deck, {options.dry_run, options.overwrite, options.strict}, job, *transport);
}

}  // namespace

ExitCode run_command(const RunOptions& options, const Process& process) {
  const CoreDumps core_dumps;  // off before anything is read that nobody else shall have
  catch_stop_signals();
  prepare_hdf5();
  return on_ranks(process, [&](World& world) { return run_in(world, options, core_dumps); });
}

}  // namespace metro
