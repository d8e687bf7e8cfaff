#include "engine/free_memory.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

using metro::free_memory_bytes;
using metro::test::ScratchFolder;

namespace {

void put(const ScratchFolder& root, const std::string& name, const std::string& content) {
  const std::filesystem::path path = root.file(name);
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << content;
}

}  // namespace

TEST_CASE("without a cgroup limit the kernel's MemAvailable counts") {
  const ScratchFolder root;
  put(root, "proc/meminfo", "MemTotal:  900 kB\nMemAvailable:   500 kB\n");
  put(root, "proc/self/cgroup", "0::/\n");
  put(root, "sys/fs/cgroup/memory.max", "max\n");

  CHECK(free_memory_bytes(root.path().string()) == 500 * 1024);
}

TEST_CASE("a limit above the group of the process counts, and droppable file pages are free") {
  const ScratchFolder root;
  put(root, "proc/meminfo", "MemAvailable: 500 kB\n");
  put(root, "proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  put(root, "sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  put(root, "sys/fs/cgroup/slurm/job_7/memory.max", "100000\n");
  put(root, "sys/fs/cgroup/slurm/job_7/memory.current", "60000\n");
  put(root, "sys/fs/cgroup/slurm/job_7/memory.stat", "anon 1\ninactive_file 5000\n");

  CHECK(free_memory_bytes(root.path().string()) == 45000);
}

TEST_CASE("the memory controller of cgroup v1 counts, and no group has less than nothing") {
  const ScratchFolder root;
  put(root, "proc/meminfo", "MemAvailable: 500 kB\n");
  put(root, "proc/self/cgroup", "3:cpu:/a\n2:memory:/job\n");
  put(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n");
  put(root, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1200\n");

  CHECK(free_memory_bytes(root.path().string()) == 0);
}

TEST_CASE("a kernel that does not tell is an error of the machine") {
  const ScratchFolder root;

  metro::test::expect_error(metro::ExitCode::machine, {"MemAvailable"},
                            [&] { free_memory_bytes(root.path().string()); });
}
