// The life of the queue, and threads that use it.
#include "device_double/device_double.hpp"
#include "kernels/mirror.hpp"
#include "kernels/queue.hpp"
#include "kernels/queue_lifetime.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <thread>

using metro::ExitCode;
using metro::PinnedBuffer;
using metro::RawBuffer;
using metro::test::expect_error;

namespace {

// The queue on another device as long as this lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    metro::stop_queue();
    metro::device_double::reset();
    metro::start_queue(device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    metro::stop_queue();
    metro::device_double::reset();
    metro::start_queue(0);
  }
};

int device_of_this_thread() {
  int device = -1;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  return device;
}

}  // namespace

TEST_CASE("a queue starts once, on a device that exists, and can be stopped and started again") {
  metro::device_double::reset();

  CHECK_THROWS_AS(metro::start_queue(0), metro::Bug);
  metro::stop_queue();
  metro::stop_queue();
  CHECK_THROWS_AS(metro::wait_for_kernels(), metro::Bug);
  CHECK_THROWS_AS(RawBuffer("rows", 8), metro::Bug);
  CHECK_THROWS_AS(PinnedBuffer("rows", 8), metro::Bug);
  expect_error(ExitCode::machine, {"cudaSetDevice failed", "invalid device ordinal"}, [] { metro::start_queue(99); });
  metro::device_double::fail_call("cudaStreamCreateWithFlags", cudaErrorMemoryAllocation);
  expect_error(ExitCode::machine, {"cudaStreamCreateWithFlags failed"}, [] { metro::start_queue(1); });
  metro::start_queue(0);
}

TEST_CASE("all threads of the host use the device of the queue") {
  const OnDevice one(1);
  int device_after_allocating = -1, device_after_waiting = -1;

  std::thread([&] {
    const PinnedBuffer buffer("weights", 8);
    device_after_allocating = device_of_this_thread();
  }).join();
  std::thread([&] {
    metro::wait_for_kernels();
    device_after_waiting = device_of_this_thread();
  }).join();

  CHECK(device_of_this_thread() == 1);
  CHECK(device_after_allocating == 1);
  CHECK(device_after_waiting == 1);
}

TEST_CASE("the check of waiting is called on the thread that set it alone") {
  const metro::Mirror<float> x("x", 1);
  int num_checks = 0;
  metro::set_waiting_check([&](bool is_over) { num_checks += is_over ? 0 : 1; });

  x.to_kernels(1);
  x.to_host(1);
  std::thread([] { metro::wait_for_kernels(); }).join();
  CHECK(num_checks == 0);

  x.to_kernels(1);
  x.to_host(1);
  metro::wait_for_kernels();
  CHECK(num_checks == 1);
  metro::set_waiting_check({});
}
