// Settings, counts, injected failures and texts of errors.
#include "double_state.hpp"

#include "failures.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

namespace metro::device_double {

namespace {

struct State {
  Settings settings;
  std::map<std::string, std::int64_t> calls;
  std::vector<Failure<cudaError_t>> failures;
  std::int64_t items_until_hang = 0;  // 0: never
  cudaError_t broken = cudaSuccess;
  cudaError_t last_error = cudaSuccess;
};

// Names that start with a space are none of functions.
const char* const item = " item";

[[noreturn]] void refuse_setting(const char* name, const char* text) {
  std::fprintf(stderr, "device double: %s = %s\n", name, text);
  std::_Exit(2);
}

void read_number(const char* name, std::int64_t& value) {
  if (const char* const text = std::getenv(name); text != nullptr) {
    char* end = nullptr;
    value = std::strtoll(text, &end, 10);
    if (end == text || *end != '\0' || value < 0) {
      refuse_setting(name, text);
    }
  }
}

State& state();

// "cudaMalloc 12" for each function that was called, in the file that METRO_DOUBLE_COUNTS names.
void write_counts() {
  const char* const path = std::getenv("METRO_DOUBLE_COUNTS");
  std::ofstream file(path);
  for (const auto& [function, number] : state().calls) {
    file << function << ' ' << number << '\n';
  }
  if (!file.flush()) {
    refuse_setting("METRO_DOUBLE_COUNTS", path);
  }
}

State state_of_environment() {
  State state;
  std::int64_t num_devices = state.settings.num_devices;
  std::int64_t driver_version = state.settings.driver_version;
  std::int64_t megabytes = state.settings.memory_bytes >> 20;
  read_number("METRO_DOUBLE_DEVICES", num_devices);
  read_number("METRO_DOUBLE_DRIVER", driver_version);
  read_number("METRO_DOUBLE_MEMORY_MB", megabytes);
  read_number("METRO_DOUBLE_HANG", state.items_until_hang);
  state.settings = {static_cast<int>(num_devices), static_cast<int>(driver_version), megabytes << 20};
  if (const char* const text = std::getenv("METRO_DOUBLE_FAIL"); text != nullptr) {
    std::istringstream words(text);
    std::string function;
    int error = 0;
    std::int64_t nth = 0;
    char colon = ' ';
    if (!std::getline(words, function, ':') || !(words >> error >> colon >> nth) || colon != ':' || nth < 1) {
      refuse_setting("METRO_DOUBLE_FAIL", text);
    }
    state.failures.push_back({function == "item" ? item : function, static_cast<cudaError_t>(error), nth - 1});
  }
  return state;
}

State& state() {
  // Never destroyed: static objects of a program may still free memory.
  static State& the_state = []() -> State& {
    State& first = *new State(state_of_environment());
    if (std::getenv("METRO_DOUBLE_COUNTS") != nullptr && std::atexit(write_counts) != 0) {
      refuse_setting("METRO_DOUBLE_COUNTS", "no memory");
    }
    return first;
  }();
  return the_state;
}

cudaError_t injected_failure(const std::string& function) {
  return take_failure(state().failures, function, cudaSuccess);
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText* text_of(cudaError_t error) {
  const auto* const found = std::find_if(std::begin(error_texts), std::end(error_texts),
                                         [error](const ErrorText& text) { return text.error == error; });
  return found != std::end(error_texts) ? found : nullptr;
}

}  // namespace

const Settings& settings() {
  return state().settings;
}

void count_call(const std::string& function) {
  ++state().calls[function];
}

cudaError_t refusal_of(const char* function) {
  count_call(function);
  const cudaError_t injected = injected_failure(function);
  if (injected != cudaSuccess) {
    return injected;
  }
  if (settings().driver_version < CUDART_VERSION / 1000 * 1000) {
    return cudaErrorInsufficientDriver;
  }
  return settings().num_devices == 0 ? cudaErrorNoDevice : state().broken;
}

cudaError_t remembered(cudaError_t result) {
  if (result != cudaSuccess && result != cudaErrorNotReady) {
    state().last_error = result;
  }
  return result;
}

void break_device(cudaError_t error) {
  state().broken = error;
}

bool next_item_hangs() {
  std::int64_t& items = state().items_until_hang;
  items -= items > 1 ? 1 : 0;
  return items == 1;
}

cudaError_t failure_of_next_item() {
  count_call("item");
  return injected_failure(item);
}

cudaError_t complain(cudaError_t error, const std::string& what) {
  std::fprintf(stderr, "device double: %s\n", what.c_str());
  return error;
}

void fail_call(const std::string& function, cudaError_t error, std::int64_t nth) {
  state().failures.push_back({function, error, nth - 1});
}

void fail_item(cudaError_t error, std::int64_t nth) {
  fail_call(item, error, nth);
}

void set_num_devices(int num_devices) {
  state().settings.num_devices = num_devices;
}

void set_driver_version(int version) {
  state().settings.driver_version = version;
}

void set_memory_bytes(std::int64_t num_bytes) {
  state().settings.memory_bytes = num_bytes;
}

std::int64_t num_calls(const std::string& function) {
  return state().calls[function];
}

void reset() {
  state() = state_of_environment();
}

}  // namespace metro::device_double

using namespace metro::device_double;

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* const text = text_of(error);
  return text != nullptr ? text->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* const text = text_of(error);
  return text != nullptr ? text->text : "unrecognized error code";
}

cudaError_t cudaGetLastError() {
  return std::exchange(state().last_error, state().broken);
}

cudaError_t cudaPeekAtLastError() {
  return state().last_error;
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  *driverVersion = settings().driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  *runtimeVersion = CUDART_VERSION;
  return cudaSuccess;
}
