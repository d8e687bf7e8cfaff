// Whether the threads of a run had a core each. Where they had not, its times say nothing about the program: they say
// how the operating system shares cores.
#pragma once

#include "report/run_records.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// Numbers of a list as Linux writes it, "0-3,8": ascending, each once. Empty for a text that is no such list, and for a
// number above 1048576.
std::vector<std::int64_t> numbers_of_list(std::string_view list);

// Threads that may run on these cores and no others.
struct CoreUse {
  std::int64_t num_threads = 0, num_cores = 0;
  std::string host;

  bool is_crowded() const { return num_threads > num_cores; }
};

// Of the ranks of a node together, and of ranks that are bound to the same cores: those with the fewest cores for a
// thread. Nothing if cores are not known.
std::optional<CoreUse> core_use(const RunIdentity& identity);

}  // namespace metro
