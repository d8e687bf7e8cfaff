// A program whose ranks exchange memory of devices, on the doubles, until one of them fails: how the job ends is what
// is tested. usage: exchange_end_program CASE [WAY]; WAY: nccl (the default), staged, aware; on the last rank:
//   silent   NCCL neither sends nor receives any more
//   absent   the rank does not enter the exchange that the others wait for
//   late     NCCL fails while the device exchanges
//   killed   the process is killed
//   start    the rank does not start NCCL
//   hangs    the device never finishes its work
//   well     nothing: all ranks end well
#include "base/error.hpp"
#include "base/last_words.hpp"
#include "device_double/device_double.hpp"
#include "device_double/mpi_double.hpp"
#include "device_double/nccl_double.hpp"
#include "kernels/buffer.hpp"
#include "kernels/queue.hpp"
#include "mpi_launch/world.hpp"
#include "transport/device_exchange.hpp"
#include "transport/nccl_exchange.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

void gather(metro::DeviceExchange& exchange) {
  const auto size = static_cast<std::size_t>(exchange.size());
  const metro::Buffer<std::byte> sent("sent", 8);
  const metro::Buffer<std::byte> received("received", 8 * exchange.size());
  exchange.all_gather({sent.data(), 8}, {received.data(), 8 * size}, std::vector<std::int64_t>(size, 8));
  metro::wait_for_kernels();
}

void fail_as(const std::string& how) {
  if (how == "silent") {
    metro::nccl_double::be_silent(1);
  } else if (how == "late") {
    metro::nccl_double::fail_later(ncclRemoteError);
  } else if (how == "killed") {
    std::raise(SIGKILL);
  } else if (how == "absent" || how == "start") {
    std::this_thread::sleep_for(std::chrono::seconds(20));
  } else if (how == "hangs") {
    static_cast<void>(metro::device_double::enqueue(static_cast<cudaStream_t>(metro::native_queue()),
                                                    [] { return metro::device_double::Progress::not_yet; }));
  }
}

std::unique_ptr<metro::DeviceExchange> make_exchange(const std::string& way, metro::Transport& transport,
                                                     double timeout_s) {
  if (way == "nccl") {
    return metro::make_nccl_exchange(transport, timeout_s);
  }
  metro::mpi_double::be_aware(way == "aware");
  return way == "aware" ? metro::make_aware_exchange(transport) : metro::make_device_exchange(transport);
}

void run(const std::string& how, const std::string& way, bool is_alone) {
  const double timeout_s = how == "killed" ? 10.0 : 0.5;  // that is to be noticed before
  const std::unique_ptr<metro::Transport> transport =
      is_alone ? metro::make_self_transport(timeout_s) : metro::make_mpi_transport(timeout_s);
  const bool is_last = transport->rank() == transport->size() - 1;
  transport->set_phase("start of NCCL");
  if (is_last && how == "start") {
    fail_as(how);
  }
  const auto exchange = make_exchange(way, *transport, timeout_s);
  transport->set_phase("layer 3 dispatch");
  gather(*exchange);
  if (is_last) {
    fail_as(how);
  }
  gather(*exchange);
}

}  // namespace

int main(int argc, char** argv) try {
  metro::World world(&argc, &argv);
  world.start_kokkos(1);
  run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "nccl", world.size() == 1);
  return 0;
} catch (const metro::Error& failure) {
  metro::write_last_words(failure.what());
  metro::World::abort(static_cast<int>(failure.exit_code()));
}
