// Queue and memory of a device on the real CUDA runtime. Links only if all that they call is there with the signature
// of the test double. With a driver memory is written and read back; without, the error says what is missing.
#include "base/error.hpp"
#include "kernels/buffer.hpp"
#include "kernels/mirror.hpp"
#include "kernels/queue.hpp"
#include "kernels/queue_lifetime.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

namespace {

// Whether what goes to the device comes back.
bool copies_come_back() {
  constexpr std::int64_t size = 1000;
  const metro::Mirror<std::int32_t> there("there", size);
  const metro::Mirror<std::int32_t> back("back", size);
  for (std::int64_t i = 0; i < size; ++i) {
    there[i] = static_cast<std::int32_t>(3 * i);
  }
  there.to_kernels(size);
  metro::queue_copy(back.kernels(), there.kernels(), there.num_bytes());
  back.to_host(size);
  metro::wait_for_kernels();
  for (std::int64_t i = 0; i < size; ++i) {
    if (back[i] != 3 * i) {
      return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  try {
    metro::start_queue(0);
  } catch (const metro::Error& error) {
    const std::string text = error.what();
    std::printf("%s\n", text.c_str());
    const bool is_clear = error.exit_code() == metro::ExitCode::machine && text.find("cudaSetDevice failed: ") == 0 &&
                          text.find("cudaError") != std::string::npos;
    return is_clear ? 0 : 1;
  }
  const bool is_fine = copies_come_back();
  metro::stop_queue();
  std::printf("copies %s\n", is_fine ? "came back" : "did not come back");
  return is_fine ? 0 : 1;
}
