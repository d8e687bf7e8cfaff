// The test double of the CUDA runtime itself: what other tests rely on.
#include "device_double/device_double.hpp"
#include "kernels/queue_lifetime.hpp"
#include "support/child_process.hpp"

#include <catch2/catch.hpp>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using metro::device_double::DeviceAccess;
using metro::device_double::enqueue;
using metro::device_double::Progress;
using metro::device_double::Work;

namespace {

// A stream of its own, and the double as it was before.
class Stream {
 public:
  Stream() {
    metro::device_double::reset();
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    metro::device_double::reset();
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  operator cudaStream_t() const { return stream_; }

  void add(Work work) const { REQUIRE(enqueue(stream_, std::move(work)) == cudaSuccess); }
  // Notes down when it runs.
  void note(std::vector<int>& notes, int number) const {
    add([&notes, number] {
      notes.push_back(number);
      return Progress::done;
    });
  }

 private:
  cudaStream_t stream_ = nullptr;
};

struct Device {
  explicit Device(std::size_t size) { REQUIRE(cudaMalloc(&memory, size) == cudaSuccess); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { static_cast<void>(cudaFree(memory)); }
  char* bytes() const { return static_cast<char*>(memory); }
  void* memory = nullptr;
};

struct Pinned {
  explicit Pinned(std::size_t size) { REQUIRE(cudaMallocHost(&memory, size) == cudaSuccess); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { static_cast<void>(cudaFreeHost(memory)); }
  char* bytes() const { return static_cast<char*>(memory); }
  void* memory = nullptr;
};

cudaMemoryType type_of(const void* pointer) {
  cudaPointerAttributes attributes{};
  REQUIRE(cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess);
  return attributes.type;
}

}  // namespace

TEST_CASE("queued work runs in order, one item for each query, all for a wait") {
  const Stream stream;
  std::vector<int> notes;
  for (int i = 0; i < 4; ++i) {
    stream.note(notes, i);
  }

  CHECK(notes.empty());
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(notes == std::vector<int>{0});
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(notes == std::vector<int>{0, 1, 2, 3});
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
}

TEST_CASE("an item that is not finished holds up what is behind it, but no other stream") {
  const Stream stream, other;
  std::vector<int> notes;
  int polls = 0;
  stream.add([&] { return ++polls < 3 ? Progress::not_yet : Progress::done; });
  stream.note(notes, 1);
  other.note(notes, 2);

  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaStreamSynchronize(other) == cudaSuccess);
  CHECK(notes == std::vector<int>{2});
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(notes == std::vector<int>{2, 1});
  CHECK(polls == 3);
}

TEST_CASE("an event is reached when its stream gets there") {
  const Stream stream;
  std::vector<int> notes;
  cudaEvent_t first = nullptr, last = nullptr, untimed = nullptr;
  float milliseconds = -1.0F;
  REQUIRE(cudaEventCreate(&first) == cudaSuccess);
  REQUIRE(cudaEventCreate(&last) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);

  CHECK(cudaEventQuery(first) == cudaSuccess);  // never recorded
  CHECK(cudaEventRecord(first, stream) == cudaSuccess);
  stream.note(notes, 1);
  CHECK(cudaEventRecord(last, stream) == cudaSuccess);
  stream.note(notes, 2);
  CHECK(cudaEventElapsedTime(&milliseconds, first, last) == cudaErrorNotReady);
  CHECK(cudaEventQuery(last) == cudaErrorNotReady);
  CHECK(cudaEventSynchronize(last) == cudaSuccess);

  CHECK(notes == std::vector<int>{1});
  CHECK(cudaEventQuery(last) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, first, last) == cudaSuccess);
  CHECK(milliseconds >= 0.0F);
  CHECK(cudaEventElapsedTime(&milliseconds, untimed, last) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  for (const cudaEvent_t event : {first, last, untimed}) {
    CHECK(cudaEventDestroy(event) == cudaSuccess);
  }
}

TEST_CASE("a pointer is told by the memory that it lies in") {
  const Stream stream;
  const Device device(64);
  const Pinned pinned(64);
  int on_stack = 0;

  CHECK(type_of(device.memory) == cudaMemoryTypeDevice);
  CHECK(type_of(device.bytes() + 63) == cudaMemoryTypeDevice);
  CHECK(type_of(device.bytes() + 65) == cudaMemoryTypeUnregistered);
  CHECK(type_of(pinned.bytes() + 10) == cudaMemoryTypeHost);
  CHECK(type_of(&on_stack) == cudaMemoryTypeUnregistered);
  CHECK(metro::device_double::is_device_memory(device.memory, 64));
  CHECK(!metro::device_double::is_device_memory(device.memory, 65));
}

TEST_CASE("device memory is in reach of queued work and of nobody else") {
  const Stream stream;
  const Device device(4);
  char seen = 0;
  stream.add([&] {
    const DeviceAccess access;
    device.bytes()[0] = 7;
    seen = device.bytes()[0];
    return Progress::done;
  });

  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(seen == 7);
  const auto host_function = metro::test::end_of_child([&] {
    std::signal(SIGSEGV, SIG_DFL);
    static_cast<void>(cudaLaunchHostFunc(
        stream, [](void* memory) { *static_cast<char*>(memory) = 1; }, device.memory));
    static_cast<void>(cudaStreamSynchronize(stream));
  });
  CHECK(WIFSIGNALED(host_function.status));
}

TEST_CASE("copies check direction, range and that memory of the host is pinned") {
  const Stream stream;
  const Device device(16);
  const Pinned pinned(16);
  char pageable[16] = {};
  const auto copy = [&](void* to, const void* from, std::size_t size, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, size, kind, stream);
  };

  CHECK(copy(device.memory, pinned.memory, 16, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(copy(pinned.memory, device.memory, 16, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(copy(device.memory, pinned.memory, 17, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(device.memory, pageable, 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(pageable, device.memory, 16, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(pinned.memory, device.memory, 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(device.memory, pinned.memory, 16, cudaMemcpyDefault) == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaMemsetAsync(pinned.memory, 0, 16, stream) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(device.memory, pageable, 16, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaMemcpy(pageable, pinned.memory, 16, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("a copy that waits does not wait for streams") {
  const Stream stream;
  const Device device(1);
  char seen = 0;
  REQUIRE(cudaMemsetAsync(device.memory, 5, 1, stream) == cudaSuccess);

  CHECK(cudaMemcpy(&seen, device.memory, 1, cudaMemcpyDeviceToHost) == cudaSuccess);

  CHECK(seen != 5);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaMemcpy(&seen, device.memory, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(seen == 5);
}

TEST_CASE("a queued copy whose memory has been freed is a failure of the device") {
  const Stream stream;
  const Device device(8);
  {
    const Pinned pinned(8);
    REQUIRE(cudaMemcpyAsync(device.memory, pinned.memory, 8, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  }

  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
  CHECK(cudaStreamQuery(stream) == cudaErrorIllegalAddress);
}

TEST_CASE("memory is limited, and what is freed can be had again") {
  const Stream stream;
  void* second = nullptr;
  std::size_t free = 0, total = 0;
  const Device first(1 << 20);
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  metro::device_double::set_memory_bytes(static_cast<std::int64_t>(total - free) + 1000);

  CHECK(cudaMalloc(&second, 1001) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&second, 1000) == cudaSuccess);
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == 0);
  CHECK(cudaFree(second) == cudaSuccess);
  CHECK(cudaFree(second) == cudaErrorInvalidValue);
  CHECK(cudaMalloc(&second, 1000) == cudaSuccess);
  CHECK(cudaFree(second) == cudaSuccess);
}

TEST_CASE("a capture keeps what is enqueued, and each launch runs its own copy") {
  const Stream stream;
  std::vector<int> notes;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStreamCaptureStatus status{};
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaErrorIllegalState);
  stream.add([&notes, runs = 0]() mutable {
    notes.push_back(++runs);
    return runs < 2 ? Progress::not_yet : Progress::done;
  });
  CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);

  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(notes.empty());
  CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
  CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(notes == std::vector<int>{1, 2, 1, 2});
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
}

TEST_CASE("calls that wait or allocate make a capture invalid") {
  const Stream stream;
  const Device device(1);
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  void* memory = nullptr;
  char byte = 0;
  const std::vector<std::function<cudaError_t()>> calls = {
      [&] { return cudaStreamQuery(stream); },
      [&] { return cudaStreamSynchronize(stream); },
      [] { return cudaDeviceSynchronize(); },
      [&] { return cudaEventQuery(event); },
      [&] { return cudaEventSynchronize(event); },
      [&] { return cudaMalloc(&memory, 1); },
      [&] { return cudaFree(device.memory); },
      [&] { return cudaMallocHost(&memory, 1); },
      [&] { return cudaMemcpy(&byte, device.memory, 1, cudaMemcpyDeviceToHost); }};

  for (const auto& call : calls) {
    cudaGraph_t graph = nullptr;
    cudaStreamCaptureStatus status{};
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);

    CHECK(call() == cudaErrorStreamCaptureUnsupported);

    CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    CHECK(cudaMemsetAsync(device.memory, 0, 1, stream) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
  }
  CHECK(cudaEventDestroy(event) == cudaSuccess);
}

TEST_CASE("calls and items fail when a test asks for it, and calls are counted") {
  const Stream stream;
  std::vector<int> notes;
  int device = -1;
  metro::device_double::fail_call("cudaGetDevice", cudaErrorDevicesUnavailable, 2);

  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(cudaGetDevice(&device) == cudaErrorDevicesUnavailable);
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(metro::device_double::num_calls("cudaGetDevice") == 3);
  stream.add([]() -> Progress { throw std::runtime_error("out of range"); });
  stream.note(notes, 1);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  CHECK(cudaGetDevice(&device) == cudaErrorLaunchFailure);  // the device stays as it is
  metro::device_double::reset();
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(notes.empty());
}

TEST_CASE("the number of devices, the driver and what is visible can be set") {
  const Stream stream;
  int count = -1, version = -1;
  char bus[32] = {};
  cudaDeviceProp properties{};
  metro::device_double::set_num_devices(3);

  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 3);
  CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, 2) == cudaSuccess);
  CHECK(std::string(bus) == "0000:1D:00.0");
  CHECK(cudaDeviceGetPCIBusId(bus, 5, 2) == cudaErrorInvalidValue);
  CHECK(cudaGetDeviceProperties(&properties, 3) == cudaErrorInvalidDevice);
  REQUIRE(::setenv("CUDA_VISIBLE_DEVICES", "2,0,7,1", 1) == 0);
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 2);
  CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK(properties.pciBusID == 0x1d);
  REQUIRE(::unsetenv("CUDA_VISIBLE_DEVICES") == 0);
  metro::device_double::set_num_devices(0);
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  metro::device_double::set_driver_version(12040);
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
  CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
  CHECK(version == 12040);
}

TEST_CASE("a program is set up by the environment") {
  const Stream stream;
  const std::vector<std::pair<const char*, const char*>> values = {{"METRO_DOUBLE_DEVICES", "1"},
                                                                   {"METRO_DOUBLE_DRIVER", "13020"},
                                                                   {"METRO_DOUBLE_MEMORY_MB", "3"},
                                                                   {"METRO_DOUBLE_FAIL", "cudaGetDevice:46:2"}};
  for (const auto& [name, value] : values) {
    REQUIRE(::setenv(name, value, 1) == 0);
  }
  metro::device_double::reset();
  for (const auto& [name, value] : values) {
    REQUIRE(::unsetenv(name) == 0);
  }
  int number = -1;
  std::size_t free = 0, total = 0;

  CHECK(cudaGetDeviceCount(&number) == cudaSuccess);
  CHECK(number == 1);
  CHECK(cudaDriverGetVersion(&number) == cudaSuccess);
  CHECK(number == 13020);
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(total == 3 << 20);
  CHECK(cudaGetDevice(&number) == cudaSuccess);
  CHECK(cudaGetDevice(&number) == cudaErrorDevicesUnavailable);
}
