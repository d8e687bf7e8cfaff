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
#include <numeric>
#include <set>
#include <span>
#include <string>

namespace metro {

namespace {

// Collective. The text of every rank. [size]
std::vector<std::string> gather_texts(const std::string& own, Transport& transport) {
  const std::vector<std::int64_t> lengths = gather_integers(transport, std::ssize(own));
  std::string all(static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})), '\0');
  transport.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)), lengths);
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::int64_t length : lengths) {
    texts.push_back(all.substr(begin, static_cast<std::size_t>(length)));
    begin += static_cast<std::size_t>(length);
  }
  return texts;
}

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

}  // namespace

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

std::vector<RankBinding> gather_bindings(Transport& transport) {
  const RankBinding own = own_binding();
  const std::vector<std::string> cpus = gather_texts(own.cpus, transport);
  const std::vector<std::string> gpus = gather_texts(own.gpus, transport);
  const std::vector<std::string> cores = gather_texts(own.cores, transport);
  std::vector<RankBinding> bindings;
  for (std::size_t rank = 0; rank < cpus.size(); ++rank) {
    bindings.push_back({cpus[rank], gpus[rank], cores[rank]});
  }
  return bindings;
}

}  // namespace metro
