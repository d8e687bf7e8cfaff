#include "cli/rank_binding.hpp"

#include "report/core_use.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

namespace metro {

namespace {

// The cores of these CPUs, each by the lowest of its CPUs: two hardware threads of a core are two CPUs. Where Linux
// does not tell, a CPU counts as a core.
std::string cores_of(const std::string& cpus) {
  std::set<std::int64_t> cores;
  for (const std::int64_t cpu : numbers_of_list(cpus)) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string siblings;
    std::getline(file, siblings);
    const std::vector<std::int64_t> numbers = numbers_of_list(siblings);
    cores.insert(numbers.empty() ? cpu : numbers.front());
  }
  return fmt::format("{}", fmt::join(cores, ","));
}

// Of this process.
RankBinding own_binding() {
  RankBinding binding;
  const std::string name = "Cpus_allowed_list:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) {
      binding.cpus = line.substr(std::min(line.size(), line.find_first_not_of(" \t", name.size())));
    }
  }
  binding.cores = cores_of(binding.cpus);
  if (const char* gpus = std::getenv("CUDA_VISIBLE_DEVICES")) {
    binding.gpus = gpus;
  }
  return binding;
}

}  // namespace

std::vector<RankBinding> gather_bindings(Transport& transport, const DeviceMap& devices) {
  const RankBinding own = own_binding();
  const std::vector<std::string> cpus = gather_texts(transport, own.cpus);
  const std::vector<std::string> gpus = gather_texts(transport, own.gpus);
  const std::vector<std::string> cores = gather_texts(transport, own.cores);
  std::vector<RankBinding> bindings;
  for (std::size_t rank = 0; rank < cpus.size(); ++rank) {
    bindings.push_back({cpus[rank], gpus[rank], cores[rank], devices.empty() ? "" : text_of(devices[rank])});
  }
  return bindings;
}

}  // namespace metro
