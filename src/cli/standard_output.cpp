#include "cli/standard_output.hpp"

#include "base/error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace metro {

namespace {

[[noreturn]] void fail(int reason) {
  throw Error(ExitCode::machine, std::string("cannot write to standard output: ") + std::strerror(reason));
}

}  // namespace

void print_to_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    fail(errno);
  }
  flush_stdout();
}

void flush_stdout() {
  if (std::fflush(stdout) != 0) {
    fail(errno);
  }
  if (std::ferror(stdout) != 0) {
    fail(EIO);  // an earlier write failed; its reason is gone
  }
}

}  // namespace metro
