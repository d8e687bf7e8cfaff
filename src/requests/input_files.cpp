#include "requests/input_files.hpp"

#include "base/error.hpp"
#include "requests/byte_source.hpp"

#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace metro {

namespace {

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

bool is_pattern(const std::string& input) {
  return input.find_first_of("*?[") != std::string::npos && !exists(input);
}

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &found);
  const int reason = errno;
  std::vector<std::string> paths;
  if (code == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  if (code == GLOB_NOMATCH) {
    throw Error(ExitCode::input, fmt::format("requests.input = {}: no file matches", pattern));
  }
  if (code != 0) {
    throw Error(ExitCode::input, fmt::format("requests.input = {}: a folder cannot be searched: {}", pattern,
                                             code == GLOB_NOSPACE ? "out of memory" : std::strerror(reason)));
  }
  std::ranges::sort(paths);  // by bytes: the same order in every locale
  return paths;
}

}  // namespace

std::vector<std::string> find_input_files(const std::vector<std::string>& inputs) {
  METRO_REQUIRE(!inputs.empty(), "no input");

  if (std::ranges::count(inputs, standard_input) > 1) {
    throw Error(ExitCode::usage, "requests.input: \"-\" is there twice, but standard input can be read only once");
  }
  std::vector<std::string> paths;
  for (const std::string& input : inputs) {
    const std::vector<std::string> found = is_pattern(input) ? matches_of(input) : std::vector{input};
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

}  // namespace metro
