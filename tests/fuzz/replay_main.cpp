// Runs one target over the files of a corpus folder, and over the beginnings of each of them: what libFuzzer found once
// stays found, with any compiler. Usage: fuzz_TARGET FOLDER
#include "fuzz/fuzz_target.hpp"

#include "base/file.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <set>

namespace {

constexpr std::size_t num_beginnings = 16;  // of each file

void replay(std::string_view bytes) {
  metro::fuzz::fuzz_one(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

// A parser that believes a size in the file fails here instead of taking the machine down. Sanitizers reserve more.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__)
  const rlimit most{rlim_t{1} << 30, rlim_t{1} << 30};
  if (::setrlimit(RLIMIT_DATA, &most) != 0) {
    std::perror("setrlimit");
    std::exit(EXIT_FAILURE);
  }
#endif
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return EXIT_FAILURE;
  }
  limit_memory();
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    paths.insert(entry.path().string());
  }
  for (const std::string& path : paths) {
    try {
      const std::string content = metro::read_file(path, metro::ExitCode::input);
      replay(content);
      for (std::size_t part = 0; part < std::min(num_beginnings, content.size()); ++part) {
        replay(std::string_view(content).substr(0, content.size() * part / num_beginnings));
      }
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "%s: %s\n", path.c_str(), failure.what());
      return EXIT_FAILURE;
    }
  }
  std::printf("%zu files\n", paths.size());
  return paths.empty() ? EXIT_FAILURE : EXIT_SUCCESS;
}
