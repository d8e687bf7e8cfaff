// What a process sees of devices, and what it says where it sees none: on the double of the CUDA runtime.
#include "mpi_launch/visible_devices.hpp"
#include "device_double/device_double.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>

using metro::ExitCode;
using metro::test::expect_error;
namespace device_double = metro::device_double;

namespace {

// Sets an environment variable for as long as it lives.
struct Variable {
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  const char* name_;
};

}  // namespace

TEST_CASE("a process sees all devices in order, with name, PCI bus and memory") {
  device_double::reset();
  device_double::set_num_devices(2);

  const auto devices = metro::visible_devices();

  REQUIRE(metro::has_devices());
  REQUIRE(devices.size() == 2);
  CHECK(!devices[0].name.empty());
  CHECK(devices[0].memory == std::int64_t{512} << 20);
  CHECK(devices[0].pci_bus_id.size() == std::string("0000:17:00.0").size());
  CHECK(devices[0].pci_bus_id != devices[1].pci_bus_id);
  CHECK(devices[0].id.size() == 32);
  CHECK(devices[0].id != devices[1].id);
}

TEST_CASE("CUDA_VISIBLE_DEVICES hides devices and numbers the others anew") {
  device_double::reset();
  device_double::set_num_devices(4);
  const auto all = metro::visible_devices();
  const Variable visible("CUDA_VISIBLE_DEVICES", "2,0");

  const auto devices = metro::visible_devices();

  REQUIRE(devices.size() == 2);
  CHECK(devices[0] == all[2]);
  CHECK(devices[1] == all[0]);
}

TEST_CASE("a machine without a driver says so") {
  device_double::reset();
  device_double::set_driver_version(0);

  expect_error(ExitCode::machine,
               {"there is no NVIDIA driver on this machine: run on one with a GPU, or a metro that was built for CPUs "
                "(this one uses CUDA 13.0)"},
               [] { metro::visible_devices(); });
}

TEST_CASE("a driver that is too old is named with what it knows and what is needed") {
  device_double::reset();
  device_double::set_driver_version(12040);

  expect_error(ExitCode::machine,
               {"the NVIDIA driver of this machine is too old: it knows CUDA 12.4, and this metro uses CUDA 13.0"},
               [] { metro::visible_devices(); });
}

TEST_CASE("a process without a device says so, and what hides them") {
  device_double::reset();
  device_double::set_num_devices(0);
  expect_error(ExitCode::machine, {"this process sees no GPU (CUDA_VISIBLE_DEVICES is not set)"},
               [] { metro::visible_devices(); });

  device_double::set_num_devices(4);
  const Variable visible("CUDA_VISIBLE_DEVICES", "");
  expect_error(ExitCode::machine, {"this process sees no GPU (CUDA_VISIBLE_DEVICES is \"\")"},
               [] { metro::visible_devices(); });
}

TEST_CASE("another failure of the device runtime is told in its words") {
  device_double::reset();
  device_double::fail_call("cudaGetDeviceCount", cudaErrorInitializationError);
  expect_error(
      ExitCode::machine,
      {"cudaGetDeviceCount failed: initialization error (cudaErrorInitializationError, 3)", "CUDA_VISIBLE_DEVICES"},
      [] { metro::visible_devices(); });

  device_double::fail_call("cudaGetDeviceProperties", cudaErrorUnknown, 2);
  expect_error(ExitCode::machine, {"cudaGetDeviceProperties failed: unknown error (cudaErrorUnknown, 999)"},
               [] { metro::visible_devices(); });
}

TEST_CASE("the versions of the device's software are named") {
  device_double::reset();

  CHECK(metro::device_software() == "CUDA 13.0 (driver: 13.0)");
}
